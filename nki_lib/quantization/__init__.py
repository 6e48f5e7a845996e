"""Narrow formats: what they are (`formats.py`), values into them (`quantize`) and back (`dequantize`), torchao."""
