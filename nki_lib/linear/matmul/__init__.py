"""Tiled matrix products: what the projections before and after attention are made of. `kernel.py` needs no PyTorch."""
