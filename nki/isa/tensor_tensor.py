"""`nisa.tensor_tensor`: an operator on two tiles, element by element."""

from __future__ import annotations

from typing import Any

from nki import dtypes
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps, engine_choice
from nki.ir.operands import ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.verify import Fault, rule
from nki.isa.apply import INT32_TYPES, apply, apply_exact, bits
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import GPSIMD_FUNCTION_CYCLES, elementwise_phases, is_inner_contiguous, pair_phases
from nki.isa.export import instruction
from nki.isa.kinds import BINARY_OP
from nki.target import Target

SINGLE_RATE = ("add", "multiply", "subtract")
"""The operators that take one cycle an element, not two, on contiguous bfloat16 in SBUF (SDK 2.26 API text)."""


@instruction
class tensor_tensor(ComputeInstruction):
    """dst[P, F] = data1[P, F] op data2[P, F], on the Vector or GpSimd engine.

    Arithmetic operators compute in float32 and round once. If all three tiles are int32 or uint32 and in SBUF, the
    GpSimd engine computes in exact 32-bit integers that wrap around, unless `engine=nisa.engine.vector` is passed.
    Bit operators take integer tiles and work on their bits; `nl.power` runs on GpSimd.
    Sources: nki.isa.tensor_tensor; semantics rules 2, 9, 13, 53.
    """

    dst = destination("P F", ON_CHIP, indirect=True, doc="the results")
    data1 = source("P F", ON_CHIP, indirect=True, doc="the left operand")
    data2 = source("P F", ON_CHIP, doc="the right operand")
    op = attribute(BINARY_OP, doc="an operator of two operands")
    engine = engine_choice(Engine.vector, Engine.gpsimd)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        if self.op.kind == "bitvec":
            return "raw"
        return "int32" if self.engine is not Engine.vector and self._has_integer_form() else "float32"

    def _has_integer_form(self) -> bool:
        """Whether GpSimd computes this in integers. Powers have no integer form."""
        integers = all(access.dtype in INT32_TYPES for _, access in self.accesses())
        in_sbuf = all(access.memory is MemoryRegion.sbuf for _, access in self.accesses())
        return integers and in_sbuf and self.op.kind == "arith" and Engine.vector in self.op.engines

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        if engine is Engine.vector:
            if Engine.vector not in self.op.engines:
                return f"nl.{self.op.name} runs on the GpSimd engine only"
            if self.engine is Engine.unknown and self._has_integer_form():
                return "32-bit integers run on the GpSimd engine unless Vector is asked for"
        elif self.op.kind == "bitvec":
            return f"nl.{self.op.name} is a bit operator, which only the Vector engine has"
        return None

    @rule("`data1` and `data2` cannot both live in psum (semantics rule 53)")
    def one_input_in_psum(self, target: Target) -> Fault | None:
        return self.both_in_psum("data1", "data2")

    @rule("bit operators take integer tiles (semantics rule 9)")
    def bit_operators_take_integers(self, target: Target) -> Fault | None:
        return self.non_integers() if self.op.kind == "bitvec" else None

    def semantics(self, a: Any) -> Steps:
        mode = self.compute()
        if mode == "raw":
            yield apply(self.op, bits(a.data1), bits(a.data2), bits(a.dst))
        elif mode == "int32":
            yield apply_exact(self.op, a.data1, a.data2, a.dst)
        else:
            yield apply(self.op, a.data1, a.data2, a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        if Engine.vector not in self.op.engines:  # ESTIMATE: as slow as the other function of GpSimd, rsqrt
            tiles = (self.data1, self.data2)
            return elementwise_phases(
                self, target, self.dst, tiles, modes=False, weight=GPSIMD_FUNCTION_CYCLES
            )
        sides = (self.dst, self.data1, self.data2)
        bfloat16 = all(side.dtype is dtypes.bfloat16 and is_inner_contiguous(side) for side in sides)
        single = bfloat16 and self.op.name in SINGLE_RATE and self.engine is Engine.vector
        return pair_phases(self, target, self.dst, (self.data1, self.data2), single=single)
