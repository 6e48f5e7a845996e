"""One or a few new tokens against a cache of keys and values. Start at `kernel.py`, or with the README."""
