"""`nisa.bn_stats`: mean and variance of the even and of the odd elements, for `nisa.bn_aggr` to merge."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.isa.apply import Array
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.target import Target

STATISTICS = 3  # count, mean, variance * count


@instruction
class bn_stats(ComputeInstruction):
    """dst[P, 6] = count, mean and variance * count of the even elements of data[P, F], then of the odd ones.

    The variance is that of the population; everything is computed in float32. F is at most 512; larger tiles take
    several instructions that write side by side, and one `nisa.bn_aggr`. Of no elements at all (the odd half of a
    single one) all three numbers are 0.
    Sources: nki.isa.bn_stats; semantics rules 81, 182.
    """

    engines = (Engine.vector,)
    layout = "declared"
    limits = {"P": "pmax", "F": "bn_stats_fmax"}

    dst = destination("P 6", ON_CHIP, doc="the statistics")
    data = source("P F", ON_CHIP, doc="the tile")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def array_shapes(self) -> dict[str, Shape]:
        return {
            "dst": (self.data.partitions, 2 * STATISTICS),
            "data": (self.data.partitions, self.data.free),
        }

    def semantics(self, a: Any) -> Steps:
        for parity in range(2):
            half = a.data[:, parity::2]
            yield from _statistics(a, half, a.dst[:, parity * STATISTICS : (parity + 1) * STATISTICS])

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (SDK 2.26 API text): an element per cycle."""
        cycles = stream_cycles(target, (self.data,))
        return (streaming_phase(target, self.engine, cycles, (self.dst, self.data)),)


def _statistics(a: Any, half: Array, out: Array) -> Steps:
    """Count, mean and squared distance from it of `half`, into the three columns `out`."""
    count = half.shape[1]
    if count == 0:
        yield np.copyto, (out, np.float32(0))
        return
    mean = a.scratch((half.shape[0], 1))
    centred = a.scratch(half.shape)
    yield np.add.reduce, (half, 1, None, mean, True)
    yield np.divide, (mean, np.float32(count), mean)
    yield np.subtract, (half, mean, centred)
    yield np.square, (centred, centred)
    yield np.copyto, (out[:, 0:1], np.float32(count))
    yield np.copyto, (out[:, 1:2], mean)
    yield np.add.reduce, (centred, 1, None, out[:, 2:3], True)
