"""`nisa.iota`: index patterns without reading memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import INTEGER, PATTERN, SBUF, TEXT, attribute, destination, optional, register
from nki.ir.verify import Fault, rule
from nki.isa.affine import affine_steps, int32_steps, pattern_fault
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
    32-bit integers, converted to the type of `dst` (a uint32 tile takes their bits). A register as `offset` is read by
    the device.
    Sources: nki.isa.iota; semantics rule 103.
    """

    engines = (Engine.gpsimd,)

    dst = destination("P F", SBUF, doc="the values")
    pattern = attribute(PATTERN, doc="[[step, count], ...], slowest first")
    offset = register("in", numbers=True, default=0, doc="added to every value: an integer or a register")
    channel_multiplier = attribute(INTEGER, 0, doc="added once per partition before")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    @rule("the pattern has up to four levels and as many values as `dst` (semantics rule 103)")
    def pattern_fits(self, target: Target) -> Fault | None:
        return pattern_fault(self.pattern, self.dst)

    def semantics(self, a: Any) -> Steps:
        values = yield from affine_steps(a, self.dst.partitions, self.pattern, self.channel_multiplier)
        if isinstance(a.offset, np.ndarray):
            yield from int32_steps(a.dst, values.reshape(a.dst.shape), self.dst.dtype)
            return
        stored = constant(values.reshape(a.dst.shape), self.dst.dtype, a.dst.dtype)
        yield np.copyto, (bits(a.dst), bits(stored))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return elementwise_phases(self, target, self.dst, (), modes=False)
