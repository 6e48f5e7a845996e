"""`nisa.dropout`: replace random elements by zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.dtypes import float32
from nki.enums import engine as Engine
from nki.errors import OperandDtypeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import FLOATS, ON_CHIP, TEXT, Operand, attribute, destination, optional, source
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import bits, float_operand
from nki.isa.compute import conversion_fault
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.isa.random_numbers import RandomInstruction
from nki.target import Target


@instruction
class dropout(RandomInstruction):
    """dst[P, F] = 0 with probability prob[P], else data[P, F] as it is: what is kept is not scaled.

    An element is dropped if the next number in [0, 1) of the Vector engine's generator is less than `prob`: with 0
    everything is kept, with 1 (or, inferred, more) everything dropped. `prob` is a number or a column, float32 if
    `data` has an integer type. `dst` has the dtype of `data`. The numbers are not those of a chip (see `nisa.rng`).
    Sources: nki.isa.dropout; semantics rules 121, 122, 176.
    """

    engines = (Engine.vector,)
    layout = "declared"

    dst = destination("P F", ON_CHIP, doc="what is left")
    data = source("P F", ON_CHIP, doc="the tile")
    prob = source("P 1", ON_CHIP, FLOATS, scalar=True, doc="the probability of zero: a number or a column")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute_of(self, operand: Operand) -> str:
        return "float32" if operand.name == "prob" else "raw"

    def array_shapes(self) -> dict[str, Shape]:
        flat = (self.dst.partitions, self.dst.free)
        return {"dst": flat, "data": flat, "prob": (self.dst.partitions, 1)}

    @rule("`dst` and `data` have one dtype")
    def dtypes_agree(self, target: Target) -> Fault | None:
        remedy = "convert before or after with nisa.tensor_copy"
        return conversion_fault(self.dst, self.data, "data", remedy=remedy)

    @rule("`prob` is float32 for integer data (semantics rule 176)")
    def probability_is_wide(self, target: Target) -> Fault | None:
        if not isinstance(self.prob, Access) or self.data.dtype.is_float or self.prob.dtype is float32:
            return None
        return Fault(
            operand=f"prob: {self.prob.describe()}",
            found=f"{self.prob.dtype} with data of {self.data.dtype}",
            allowed="float32",
            remedy="copy the column into a float32 tile: nisa.tensor_copy",
            error=OperandDtypeError,
        )

    @rule("`prob` is a probability (semantics rule 122)", severity="warning")
    def probability_is_one(self, target: Target) -> Fault | None:
        if isinstance(self.prob, Access) or 0 <= self.prob <= 1:
            return None
        return Fault(
            operand="prob",
            found=self.prob,
            allowed="0.0 to 1.0",
            remedy="pass the share of elements to drop, not a percentage",
        )

    def semantics(self, a: Any) -> Steps:
        out = bits(a.dst)
        dropped = a.scratch(a.dst.shape, np.bool_)
        yield from self.fractions(a, self.dst.partitions, self.dst.free)
        yield np.less, (a.fractions, float_operand(a.prob), dropped)
        yield np.copyto, (out, bits(a.data))
        yield np.copyto, (out, out.dtype.type(0), "same_kind", dropped)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (SDK 2.26 API text): an element per cycle."""
        return elementwise_phases(self, target, self.dst, (self.data,), modes=False)
