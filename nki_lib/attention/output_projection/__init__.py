"""From heads back to the width of the model. `kernel.py` needs no PyTorch; `op.py` does; `api.py` is the front door."""
