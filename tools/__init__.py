"""What keeps the written pages true: `docs.py` generates the reference, `readme.py` the tables of README.md,
`tutorials.py` runs the notebooks and keeps their outputs. No part of the installed packages."""
