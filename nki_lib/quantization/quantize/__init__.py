"""Values to a narrow format with its scales. `kernel.py` needs no PyTorch; `op.py` does; `api.py` is the front door."""
