"""Tests of the top level of `nki`: dtypes, tensors, jit, arguments, programs on disk, the command line."""
