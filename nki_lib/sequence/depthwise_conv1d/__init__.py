"""Depthwise convolution along a sequence. `kernel.py` needs no PyTorch; `op.py` does; `api.py` is the front door."""
