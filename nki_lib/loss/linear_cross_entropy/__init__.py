"""Cross entropy with its projection. `kernel.py` needs no PyTorch; `api.py` is the front door."""
