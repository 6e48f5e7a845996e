"""Which experts a token goes to, and with what weights. `kernel.py` needs no PyTorch; `api.py` is the front door."""
