"""`nisa.rand2`: uniform random numbers, on the trn3 Vector engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import FLOAT32, INTEGERS, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import float_operand
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.isa.random_numbers import RandomInstruction
from nki.target import Target

_RESULTS = INTEGERS | {
    dtypes.float8_e4m3,
    dtypes.float8_e5m2,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.tfloat32,
}


@instruction
class rand2(RandomInstruction):
    """dst[P, F] = min[P] + u * (max[P] - min[P]) in float32, u uniform in [0, 1) from the xorwow generators.

    `min` and `max` are numbers or float32 columns. u is a multiple of 2^-24, so `max` itself occurs only by rounding.
    The stream is that of `nisa.rng` on the Vector engine. The numbers are not those of a chip (see `nisa.rng`).
    Sources: nki.isa.rand2; trainium3_arch.rst (four values a cycle); semantics rules 121, 123.
    """

    since = nc_version.gen4
    engines = (Engine.vector,)
    layout = "declared"

    dst = destination("P F", ON_CHIP, _RESULTS, doc="the random numbers")
    min = source("P 1", ON_CHIP, FLOAT32, scalar=True, doc="the low end: a number or a column")
    max = source("P 1", ON_CHIP, FLOAT32, scalar=True, doc="the high end")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def array_shapes(self) -> dict[str, Shape]:
        column = (self.dst.partitions, 1)
        return {"dst": (self.dst.partitions, self.dst.free), "min": column, "max": column}

    @rule("`min` is less than `max`")
    def range_is_not_empty(self, target: Target) -> Fault | None:
        if isinstance(self.min, Access) or isinstance(self.max, Access) or self.min < self.max:
            return None
        return Fault(
            operand="min and max",
            found=f"min={self.min!r}, max={self.max!r}",
            allowed="min < max",
            remedy="exchange them, or use nisa.memset for a constant",
        )

    def semantics(self, a: Any) -> Steps:
        low, high = float_operand(a.min), float_operand(a.max)
        width = a.scratch((self.dst.partitions, 1))
        yield from self.fractions(a, self.dst.partitions, self.dst.free)
        yield np.subtract, (high, low, width)
        yield np.multiply, (a.fractions, width, a.fractions)
        yield np.add, (a.fractions, low, a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (trainium3_arch.rst): four values per lane and cycle."""
        cycles = stream_cycles(target, (self.dst,))
        return (streaming_phase(target, self.engine, cycles, (self.dst,), speed=target.vector_quad_rate),)
