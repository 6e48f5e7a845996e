"""Attention: one folder per operator, each with kernel, reference, operator and README."""
