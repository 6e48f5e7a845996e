"""The closed list of what an instruction can do besides writing its operands.

The machine implements these, never a mnemonic. Engine state is one float32 per partition, kept between instructions.
"""

from __future__ import annotations

SCALAR_ACCUMULATOR = "scalar_accumulator"
"""Accumulator registers of the Scalar engine, shared by the activation family."""

VECTOR_ACCUMULATOR = "vector_accumulator"
"""Accumulator registers of the Vector engine, shared by its reducing instructions."""

STATES = (SCALAR_ACCUMULATOR, VECTOR_ACCUMULATOR)

PRINT = "print"
"""Shows a tensor to the user; keeps its place among the instructions that touch the tensor."""

EFFECTS = (PRINT,)
