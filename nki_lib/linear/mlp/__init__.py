"""The MLP of a transformer block. `kernel.py` needs no PyTorch; `op.py` does; `api.py` is the front door."""
