"""Values of a narrow format back. `kernel.py` needs no PyTorch; `op.py` does; `api.py` is the front door."""
