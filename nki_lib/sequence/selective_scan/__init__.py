"""The selective scan of Mamba. `kernel.py` needs no PyTorch; `op.py` does; `api.py` is the front door."""
