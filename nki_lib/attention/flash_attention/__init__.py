"""Flash attention, forward. `kernel.py` can be used without PyTorch; `op.py` needs it. The front door is `nki_lib`."""
