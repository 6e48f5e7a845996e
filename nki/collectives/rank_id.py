"""`nki.collectives.rank_id`: which rank a kernel runs on."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.collectives.collective import OWN_RANK
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import TEXT, attribute, optional, register
from nki.isa.costs import sequencer_phase
from nki.isa.export import instruction
from nki.target import Target


@instruction
class rank_id(Instruction):
    """A register with the number of this rank, e.g. for `x.ap(pattern, scalar_offset=rank_id())`.

    Both cores of `kernel[2]` belong to one rank. A run on this machine is rank 0.
    Sources: nki.collectives.rank_id; nki.isa.VirtualRegister; about/collectives.rst.
    Cost: ESTIMATE (`register_move_ps`).
    """

    engines = (Engine.sync,)
    limits = {}
    namespace = "nki.collectives"
    creates = "dst"

    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")
    dst = register("out", default=None, doc="the new register, made by the call")

    def semantics(self, a: Any) -> Steps:
        yield np.copyto, (a.dst, np.full(1, OWN_RANK, np.int32))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return (sequencer_phase(target, self.engine, target.register_move_ps, "register"),)
