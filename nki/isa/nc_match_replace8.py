"""`nisa.nc_match_replace8`: replace eight given values in each partition, each once."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import NUMBER, ON_CHIP, TEXT, Operand, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.isa.apply import Array, float_operand
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.isa.matching import INDEX_DTYPES, SLOTS, match
from nki.target import Target


@instruction
class nc_match_replace8(ComputeInstruction):
    """dst[P, F] = data[P, F] with the first element that equals vals[P, s] replaced by imm, for the eight slots s.

    The slots are served from 7 down to 0, and no element is taken twice: of equal values the last slot gets the first
    occurrence. `dst_idx` receives where each was found, all ones for a value that is not there (inferred). Elements
    are compared in float32, and pass through it. `dst` may be `data` itself.
    Sources: nki.isa.nc_match_replace8; release notes of 0.6.0; semantics rules 111, 112.
    """

    engines = (Engine.vector,)
    layout = "declared"

    dst = destination("P F", ON_CHIP, doc="the tile with the replacements")
    data = source("P F", ON_CHIP, doc="the tile that is searched")
    vals = source("P 8", ON_CHIP, doc="the values that are replaced")
    imm = attribute(NUMBER, doc="what stands in their place")
    dst_idx = destination("P 8", ON_CHIP, INDEX_DTYPES, default=None, doc="where they stood")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def array_shapes(self) -> dict[str, Shape]:
        flat = (self.data.partitions, self.data.free)
        slots = (self.data.partitions, SLOTS)
        return {"dst": flat, "data": flat, "vals": slots, "dst_idx": slots}

    def compute_of(self, operand: Operand) -> str:
        return "raw" if operand.name == "dst_idx" else "float32"

    def semantics(self, a: Any) -> Steps:
        rows = a.scratch(a.data.shape)
        places = a.scratch(a.vals.shape, np.int64)
        yield np.copyto, (rows, a.data)
        yield match, (rows, a.vals, range(SLOTS)[::-1], places)
        yield np.copyto, (a.dst, a.data)
        yield _replace, (a.dst, places, float_operand(self.imm))
        if a.dst_idx is not None:
            yield np.copyto, (a.dst_idx, places, "unsafe")  # -1 becomes all ones

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (SDK 2.23 API text) as N; later texts print min(MIN_II, N), which must mean max."""
        return elementwise_phases(self, target, self.dst, (self.data,), modes=False)


def _replace(rows: Array, places: Array, value: Any) -> None:
    lanes, slots = np.nonzero(places >= 0)
    rows[lanes, places[lanes, slots]] = value
