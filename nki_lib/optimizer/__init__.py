"""Optimisers: updates of parameters in place."""
