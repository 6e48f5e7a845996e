"""Experts for a few tokens: only the weights that a token chose are read. `kernel.py` (NKI) needs no PyTorch."""
