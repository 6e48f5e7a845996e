"""Cross entropy of logits. `kernel.py` can be used without PyTorch; `op.py` needs it; `api.py` is the front door."""
