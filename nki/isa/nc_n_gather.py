"""`nisa.nc_n_gather`: gather within each partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import ANY_DTYPE, SBUF, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array, bits
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.isa.gathering import check_indices, other_dtype_fault
from nki.target import Target

CYCLES_PER_INDEX = 8


@instruction
class nc_n_gather(ComputeInstruction):
    """dst[p, i] = data[p, indices[p, i]], the free dimensions of each operand flattened, on the GpSimd engine.

    Every partition has its own indices, which count the elements of `data` in one partition. Elements move bit by bit.
    An index outside `data` stops the run with an error that names it.
    Sources: nki.isa.nc_n_gather; semantics rule 105.
    """

    engines = (Engine.gpsimd,)
    layout = "declared"

    dst = destination("P F", SBUF, ANY_DTYPE, doc="the gathered elements")
    data = source("P *", SBUF, ANY_DTYPE, doc="the tile to gather from")
    indices = source("P F", SBUF, frozenset({dtypes.uint32}), doc="which elements of their partition")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {operand.name: (a.partitions, a.free) for operand, a in self.accesses()}

    @rule("`dst` and `data` have one dtype (semantics rule 105)")
    def dtypes_agree(self, target: Target) -> Fault | None:
        return other_dtype_fault(self.dst, self.data, "data")

    def semantics(self, a: Any) -> Steps:
        yield _gather, (self, bits(a.data), a.indices, bits(a.dst))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: 8 cycles an index, what `nisa.local_gather` takes for runs of one 4-byte element."""
        cycles = stream_cycles(target, (self.indices, self.dst), CYCLES_PER_INDEX)
        return (streaming_phase(target, self.engine, cycles, (self.data, self.indices, self.dst)),)


def _gather(node: Instruction, data: Array, indices: Array, dst: Array) -> None:
    check_indices(node, "indices", indices, data.shape[1] - 1)
    dst[...] = np.take_along_axis(data, indices.astype(np.intp), axis=1)
