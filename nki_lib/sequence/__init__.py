"""Operators along a sequence, of state space models: the convolution before the scan, and the scan."""
