"""`nisa.max8`: the eight largest elements of each partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.isa.matching import SLOTS, dimensions_fault, size_fault
from nki.target import Target


@instruction
class max8(ComputeInstruction):
    """dst[P, 8] = the eight largest elements of src[P, F] in descending order, duplicates included.

    They are compared in float32 and converted to the dtype of `dst`. F is 8 to 16384; `src` has up to three
    dimensions. A NaN counts as the largest (inferred: NumPy's order; nothing is documented).
    Sources: nki.isa.max8; semantics rules 109, 112, 182.
    """

    engines = (Engine.vector,)
    layout = "declared"
    limits = {"P": "pmax", "F": "max8_fmax"}

    dst = destination("P 8", ON_CHIP, doc="the largest elements, descending")
    src = source("P F", ON_CHIP, doc="the tile")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def array_shapes(self) -> dict[str, Shape]:
        return {"dst": (self.src.partitions, SLOTS), "src": (self.src.partitions, self.src.free)}

    @rule("`src` has at least eight elements per partition (semantics rule 109)")
    def source_is_long(self, target: Target) -> Fault | None:
        return size_fault("src", self.src, target)

    @rule("`src` has up to three dimensions (semantics rule 109)")
    def source_is_simple(self, target: Target) -> Fault | None:
        return dimensions_fault("src", self.src)

    def semantics(self, a: Any) -> Steps:
        rows = a.scratch(a.src.shape)
        largest = rows[:, -SLOTS:]
        yield np.copyto, (rows, a.src)
        yield rows.partition, (rows.shape[1] - SLOTS, 1)
        yield largest.sort, (1,)
        yield np.copyto, (a.dst, largest[:, ::-1])

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (SDK 2.26 API text): an element per cycle."""
        cycles = stream_cycles(target, (self.src,))
        return (streaming_phase(target, self.engine, cycles, (self.src, self.dst)),)
