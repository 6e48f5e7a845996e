"""Rows of a table by id. `kernel.py` can be used without PyTorch; `op.py` needs it; `api.py` is the front door."""
