"""`nisa.register_load`: a value from memory into a register."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import HBM_OR_SBUF, register, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.costs import sequencer_phase
from nki.isa.export import instruction
from nki.isa.register_words import REGISTER_TYPES, float_fault, one_value_fault
from nki.target import Target


@instruction
class register_load(Instruction):
    """dst = src: the one element of a tensor in HBM or SBUF goes into a register.

    Integers of 8 and 16 bits are extended by their sign or by zeros. A float32 is not converted: the register holds its
    bits, so a count or an index must be an integer in memory.
    Sources: nki.isa.register_load; nki-language-guide.rst; semantics rule 124. Cost: ESTIMATE (`register_memory_ps`).
    """

    engines = (Engine.sync,)
    limits = {}
    layout = "declared"

    dst = register("out", doc="the register to set")
    src = source("E", HBM_OR_SBUF, REGISTER_TYPES, doc="a tensor with one element")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {"src": (1,)}

    @rule("`src` has one element")
    def one_value(self, target: Target) -> Fault | None:
        return one_value_fault("src", self.src)

    @rule("a register holds the bits of a float32, not its value", severity="warning")
    def no_conversion(self, target: Target) -> Fault | None:
        return float_fault("src", self.src)

    def semantics(self, a: Any) -> Steps:
        wide = a.src.dtype if a.src.itemsize == a.dst.itemsize else a.dst.dtype
        yield np.copyto, (a.dst.view(wide), a.src)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return (sequencer_phase(target, self.engine, target.register_memory_ps, "register"),)
