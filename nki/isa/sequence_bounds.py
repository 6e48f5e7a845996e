"""`nisa.sequence_bounds`: where the run that an element belongs to begins and ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.errors import OperandShapeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import SBUF, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.target import Target

IDS = frozenset({dtypes.float32, dtypes.int32})


@instruction
class sequence_bounds(ComputeInstruction):
    """dst[0, 0, i], dst[0, 1, i] = first index, last index + 1 of the run of equal ids around element i, on GpSimd.

    `segment_ids` is one partition of n ids; a run is a stretch of equal ids. An id of 0 marks padding and gives the
    pair (n, -1). `dst` has 2n elements in one partition: n starts, then n ends.
    Sources: nki.isa.sequence_bounds; test_nki_isa_sequence_bounds.py; semantics rule 106.
    """

    engines = (Engine.gpsimd,)
    layout = "declared"

    dst = destination("* *", SBUF, IDS, doc="starts and ends, [1, 2, n]")
    segment_ids = source("* *", SBUF, IDS, doc="the ids, [1, n]; 0 is padding")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {"dst": (2, self.segment_ids.free), "segment_ids": (self.segment_ids.free,)}

    @rule("the ids lie in one partition, and `dst` has room for two bounds each (semantics rule 106)")
    def one_partition(self, target: Target) -> Fault | None:
        n = self.segment_ids.free
        for name, wanted in (("segment_ids", (1, n)), ("dst", (1, 2, n))):
            access = self.__dict__[name]
            if access.partitions != 1 or (name == "dst" and access.free != 2 * n):
                return Fault(
                    operand=f"{name}: {access.describe()}",
                    found=f"shape {list(access.shape)}",
                    allowed=f"{list(wanted)}",
                    remedy="pass one partition at a time: ids[i : i + 1, :]",
                    error=OperandShapeError,
                    text=f"`{name}` has shape {list(access.shape)}, {list(wanted)} is needed",
                )
        return None

    def semantics(self, a: Any) -> Steps:
        yield _bounds, (a.segment_ids, a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: an element per cycle, one pass; no figure is published."""
        cycles = stream_cycles(target, (self.segment_ids,))
        return (streaming_phase(target, self.engine, cycles, (self.segment_ids, self.dst)),)


def _bounds(ids: Array, dst: Array) -> None:
    n = len(ids)
    edges = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1], [True])))
    lengths = np.diff(edges)
    padding = ids == 0
    dst[0] = np.where(padding, n, np.repeat(edges[:-1], lengths))
    dst[1] = np.where(padding, -1, np.repeat(edges[1:], lengths))
