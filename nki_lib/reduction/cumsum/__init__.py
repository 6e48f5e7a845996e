"""Running sums along a dimension. `kernel.py` needs no PyTorch; `api.py` is the front door."""
