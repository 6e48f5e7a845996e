"""Flash attention, forward and backward. The kernels work without PyTorch; `op.py` needs it, `api.py` to be called."""
