"""`nisa.register_move`: set a register to a number or to another register's value."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.control import Register
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import register
from nki.ir.verify import Fault, rule
from nki.isa.costs import sequencer_phase
from nki.isa.export import instruction
from nki.isa.register_words import number_fault, set_word, word_of
from nki.target import Target


@instruction
class register_move(Instruction):
    """dst = src: a register is set to an integer, or to what another register holds.

    The counter of a loop may be `src`, not `dst`.
    Sources: nki.isa.register_move; semantics rules 124, 126. Cost: ESTIMATE (`register_move_ps`).
    """

    engines = (Engine.sync,)
    limits = {}

    dst = register("out", doc="the register to set")
    src = register("in", numbers=True, doc="an integer or a register")

    @rule("a register holds 32 bits")
    def fits(self, target: Target) -> Fault | None:
        return None if isinstance(self.src, Register) else number_fault("src", self.src)

    def semantics(self, a: Any) -> Steps:
        if isinstance(a.src, np.ndarray):
            yield np.copyto, (a.dst, a.src)
        else:
            yield set_word, (a.dst, word_of(a.src))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return (sequencer_phase(target, self.engine, target.register_move_ps, "register"),)
