"""`nisa.tensor_clamp`: limit a tile to a range."""

from __future__ import annotations

from typing import Any

from nki.enums import engine as Engine
from nki.errors import ArgumentError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import FLOAT32, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Access
from nki.ir.verify import Fault, rule
from nki.isa.alu import alu
from nki.isa.apply import apply, float_operand
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.target import Target


@instruction
class tensor_clamp(ComputeInstruction):
    """dst[P, F] = min(max(data[P, F], low), high), on the Vector engine.

    A bound is a number or a column (P, 1) of float32, the same for a whole partition. Everything is computed in
    float32 and rounded once; NaN stays NaN.
    Sources: an example, no instruction of the chip; semantics rules 2, 176.
    """

    engines = (Engine.vector,)

    dst = destination("P F", ON_CHIP, doc="the results")
    data = source("P F", ON_CHIP, doc="the tile")
    low = source("P 1", ON_CHIP, FLOAT32, scalar=True, doc="the smallest result: a number or a column")
    high = source("P 1", ON_CHIP, FLOAT32, scalar=True, doc="the largest result: a number or a column")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    @rule("the range is not empty")
    def range_is_not_empty(self, target: Target) -> Fault | None:
        if isinstance(self.low, Access) or isinstance(self.high, Access) or self.low <= self.high:
            return None
        return Fault(
            operand="low and high",
            found=f"{self.low} and {self.high}",
            allowed="low <= high",
            remedy=f"pass low={self.high}, high={self.low}",
            error=ArgumentError,
        )

    def semantics(self, a: Any) -> Steps:
        yield apply(alu("maximum"), a.data, float_operand(a.low), a.dst)
        yield apply(alu("minimum"), a.dst, float_operand(a.high), a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return elementwise_phases(self, target, self.dst, (self.data,))
