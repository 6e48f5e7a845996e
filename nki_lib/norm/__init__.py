"""Normalisation of rows, with its neighbours: the residual added before, and 8-bit quantisation after."""
