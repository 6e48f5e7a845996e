"""`nisa.reciprocal`: 1/x on the Vector engine."""

from __future__ import annotations

from typing import Any

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import ON_CHIP, TEXT, attribute, destination, optional, source
from nki.isa.alu import alu
from nki.isa.apply import apply
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.target import Target

CYCLES_PER_ELEMENT = 8  # PUBLISHED (nki.api.shared.rst); counters of public trn1 kernels hint at less


@instruction
class reciprocal(ComputeInstruction):
    """dst[P, F] = 1 / data[P, F] in float32, on the Vector engine.

    More precise than `nisa.activation` with `op=nl.reciprocal`, and eight times slower on large tiles.
    Sources: nki.isa.reciprocal; nki.api.shared.rst (engine selection).
    """

    engines = (Engine.vector,)

    dst = destination("P F", ON_CHIP, doc="the reciprocals")
    data = source("P F", ON_CHIP, doc="the tile to invert")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def semantics(self, a: Any) -> Steps:
        yield apply(alu("reciprocal"), a.data, None, a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return elementwise_phases(
            self, target, self.dst, (self.data,), modes=False, weight=CYCLES_PER_ELEMENT
        )
