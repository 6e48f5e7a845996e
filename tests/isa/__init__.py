"""Tests of the instruction set, one module per instruction."""
