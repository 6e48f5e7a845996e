"""`nisa.register_alloc`: a register of the device."""

from __future__ import annotations

from typing import Any

from nki.enums import engine as Engine
from nki.ir.control import Register
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import INTEGER, attribute, optional, register
from nki.ir.verify import Fault, rule
from nki.isa.costs import sequencer_phase
from nki.isa.export import instruction
from nki.isa.register_words import number_fault, set_word, word_of
from nki.target import Target


@instruction
class register_alloc(Instruction):
    """A new 32-bit register, holding the integer `x` if one is given. Returns a `VirtualRegister`.

    Registers are bounds and conditions of loops on the device, and dynamic addresses. Signed and unsigned values are
    the same bits. Without `x` the register has no value until something writes it.
    Sources: nki.isa.register_alloc; nki-language-guide.rst; semantics rule 124. Cost: ESTIMATE (`register_move_ps`).
    """

    engines = (Engine.sync,)
    limits = {}
    creates = "dst"

    x = attribute(optional(INTEGER), None, doc="the first value")
    dst = register("out", default=None, doc="the new register, made by the call")

    @rule("a register holds 32 bits")
    def fits(self, target: Target) -> Fault | None:
        return number_fault("x", self.x)

    def registers_written(self) -> list[Register]:
        return [] if self.x is None else super().registers_written()

    def semantics(self, a: Any) -> Steps:
        if self.x is not None:
            yield set_word, (a.dst, word_of(self.x))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return (sequencer_phase(target, self.engine, target.register_move_ps, "register"),)
