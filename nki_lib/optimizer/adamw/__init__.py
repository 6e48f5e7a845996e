"""AdamW, one fused step in place. `kernel.py` can be used without PyTorch; `op.py` and `optimizer.py` need it."""
