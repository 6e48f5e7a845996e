"""`nisa.bn_aggr`: mean and variance of everything that several `nisa.bn_stats` have seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.errors import OperandShapeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.bn_stats import STATISTICS
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.target import Target

CYCLES_PER_TRIPLE = 13  # PUBLISHED, SDK 2.26 API text: 13 N / 3


@instruction
class bn_aggr(ComputeInstruction):
    """dst[P, 2] = mean and variance of the elements behind data[P, 3 k], triples (count, mean, variance * count).

    With n = sum of the counts: mean = sum(count * mean) / n, and variance = (sum(variance * count) +
    sum(count * (mean of the triple - mean)^2)) / n, the variance of the population. All in float32.
    Sources: nki.isa.bn_aggr; semantics rule 81.
    """

    engines = (Engine.vector,)
    layout = "declared"

    dst = destination("P 2", ON_CHIP, doc="mean and variance")
    data = source("P F", ON_CHIP, doc="the triples that `nisa.bn_stats` makes")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def array_shapes(self) -> dict[str, Shape]:
        triples = (self.data.partitions, self.data.free // STATISTICS, STATISTICS)
        return {"dst": (self.data.partitions, 2), "data": triples}

    @rule("`data` consists of triples")
    def data_is_complete(self, target: Target) -> Fault | None:
        if self.data.free % STATISTICS == 0:
            return None
        return Fault(
            operand=f"data: {self.data.describe()}",
            found=f"{self.data.free} elements per partition",
            allowed=f"a multiple of {STATISTICS}",
            remedy="pass what nisa.bn_stats wrote: six elements each",
            error=OperandShapeError,
        )

    def semantics(self, a: Any) -> Steps:
        count, mean, spread = (a.data[:, :, k] for k in range(STATISTICS))
        total, middle, rest = (a.scratch((count.shape[0], 1)) for _ in range(3))
        part = a.scratch(count.shape)
        yield np.add.reduce, (count, 1, None, total, True)
        yield np.multiply, (count, mean, part)
        yield np.add.reduce, (part, 1, None, middle, True)
        yield np.divide, (middle, total, middle)
        yield np.subtract, (mean, middle, part)
        yield np.square, (part, part)
        yield np.multiply, (part, count, part)
        yield np.add, (part, spread, part)
        yield np.add.reduce, (part, 1, None, rest, True)
        yield np.copyto, (a.dst[:, 0:1], middle)
        yield np.divide, (rest, total, a.dst[:, 1:2])

    def cost(self, target: Target) -> tuple[Phase, ...]:
        cycles = stream_cycles(target, (self.data,), CYCLES_PER_TRIPLE) // STATISTICS
        return (streaming_phase(target, self.engine, cycles, (self.dst, self.data)),)
