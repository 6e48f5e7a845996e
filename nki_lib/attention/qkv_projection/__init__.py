"""Queries, keys and values of hidden states. `kernel.py` needs no PyTorch; `op.py` does; `api.py` is the front door."""
