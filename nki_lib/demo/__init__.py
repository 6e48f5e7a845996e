"""`python -m nki_lib.demo`: FlashAttention written in NKI inside a PyTorch model, its values and its predicted time."""
