"""`nisa.iota`: index patterns without reading memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import INTEGER, PATTERN, SBUF, TEXT, attribute, destination, optional
from nki.ir.verify import Fault, rule
from nki.isa.affine import affine_values, pattern_fault
from nki.isa.apply import bits, constant
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.target import Target


@instruction
class iota(ComputeInstruction):
    """dst[P, i] = offset + p * channel_multiplier + sum of step * index over `pattern`, on the GpSimd engine.

    `pattern` is a list of up to four [step, count] pairs, the last one running fastest; the counts multiply to the
    elements per partition of `dst`, whatever its shape. `p` counts from the first partition of `dst`. The values are
    32-bit integers, converted to the type of `dst` (a uint32 tile takes their bits).
    Sources: nki.isa.iota; semantics rule 103.
    """

    engines = (Engine.gpsimd,)

    dst = destination("P F", SBUF, doc="the values")
    pattern = attribute(PATTERN, doc="[[step, count], ...], slowest first")
    offset = attribute(INTEGER, 0, doc="added to every value")
    channel_multiplier = attribute(INTEGER, 0, doc="added once per partition before")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    @rule("the pattern has up to four levels and as many values as `dst` (semantics rule 103)")
    def pattern_fits(self, target: Target) -> Fault | None:
        return pattern_fault(self.pattern, self.dst)

    def semantics(self, a: Any) -> Steps:
        values = affine_values(self.dst.partitions, self.pattern, self.offset, self.channel_multiplier)
        stored = constant(values.reshape(a.dst.shape), self.dst.dtype, a.dst.dtype)
        yield np.copyto, (bits(a.dst), bits(stored))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return elementwise_phases(self, target, self.dst, (), modes=False)
