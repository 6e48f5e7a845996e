"""`nisa.register_store`: a register's value into memory."""

from __future__ import annotations

from typing import Any

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import HBM_OR_SBUF, destination, register
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.costs import sequencer_phase
from nki.isa.export import instruction
from nki.isa.register_words import REGISTER_TYPES, float_fault, one_value_fault, store_word
from nki.target import Target


@instruction
class register_store(Instruction):
    """dst = src: a register's value goes to the one element of a tensor in HBM or SBUF.

    A narrower integer takes the low bits, a float32 the bits as they are.
    Sources: nki.isa.register_store; nki-language-guide.rst; semantics rule 124. Cost: ESTIMATE (`register_memory_ps`).
    """

    engines = (Engine.sync,)
    limits = {}
    layout = "declared"

    dst = destination("E", HBM_OR_SBUF, REGISTER_TYPES, doc="a tensor with one element")
    src = register("in", doc="the register to store")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {"dst": (1,)}

    @rule("`dst` has one element")
    def one_value(self, target: Target) -> Fault | None:
        return one_value_fault("dst", self.dst)

    @rule("a register holds the bits of a float32, not its value", severity="warning")
    def no_conversion(self, target: Target) -> Fault | None:
        return float_fault("dst", self.dst)

    def semantics(self, a: Any) -> Steps:
        word = a.src.view(a.dst.dtype) if a.dst.itemsize == a.src.itemsize else a.src
        yield store_word, (a.dst, word)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return (sequencer_phase(target, self.engine, target.register_memory_ps, "register"),)
