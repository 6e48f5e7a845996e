"""`nisa.nc_find_index8`: where in each partition eight given values stand."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import ON_CHIP, TEXT, Operand, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.isa.matching import INDEX_DTYPES, SLOTS, dimensions_fault, match, size_fault
from nki.target import Target


@instruction
class nc_find_index8(ComputeInstruction):
    """dst[P, s] = index of the first element of data[P, F] that equals vals[P, s], for the eight slots s.

    Slots that search for the same value take its occurrences one after the other, slot 0 the first. A value that is
    not there (any more) gives all ones: 0xFFFFFFFF, or 0xFFFF in a uint16 tile. Elements are compared in float32. F
    is 8 to 16384, counted over all free axes; `data` and `vals` have up to three dimensions.
    Sources: nki.isa.nc_find_index8; release notes of 0.6.0; semantics rules 110, 112, 182.
    """

    engines = (Engine.vector,)
    layout = "declared"
    limits = {"P": "pmax", "F": "max8_fmax"}

    dst = destination("P 8", ON_CHIP, INDEX_DTYPES, doc="the indices")
    data = source("P F", ON_CHIP, doc="the tile that is searched")
    vals = source("P 8", ON_CHIP, doc="the values that are looked for")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def array_shapes(self) -> dict[str, Shape]:
        slots = (self.data.partitions, SLOTS)
        return {"dst": slots, "data": (self.data.partitions, self.data.free), "vals": slots}

    def compute_of(self, operand: Operand) -> str:
        return "raw" if operand.name == "dst" else "float32"

    @rule("`data` has at least eight elements per partition (semantics rule 182)")
    def data_is_long(self, target: Target) -> Fault | None:
        return size_fault("data", self.data, target)

    @rule("`data` and `vals` have up to three dimensions")
    def tiles_are_simple(self, target: Target) -> Fault | None:
        return dimensions_fault("data", self.data) or dimensions_fault("vals", self.vals)

    def semantics(self, a: Any) -> Steps:
        rows = a.scratch(a.data.shape)
        places = a.scratch(a.vals.shape, np.int64)
        yield np.copyto, (rows, a.data)
        yield match, (rows, a.vals, range(SLOTS), places)
        yield np.copyto, (a.dst, places, "unsafe")  # -1 becomes all ones

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (SDK 2.26 API text): an element per cycle."""
        cycles = stream_cycles(target, (self.data,))
        return (streaming_phase(target, self.engine, cycles, (self.data, self.dst)),)
