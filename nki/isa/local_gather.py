"""`nisa.local_gather`: gather by one index list per GpSimd core."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.errors import LimitError, OperandShapeError
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import ANY_DTYPE, INTEGER, SBUF, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array, bits
from nki.isa.compute import ComputeInstruction
from nki.isa.cores import CORE_PARTITIONS, whole_cores_fault
from nki.isa.costs import streaming_phase
from nki.isa.export import instruction
from nki.isa.gathering import check_indices, other_dtype_fault
from nki.target import Target

RUNS = (1, 2, 4, 8, 16, 32)
"""Elements that one index may fetch."""


@instruction
class local_gather(ComputeInstruction):
    """dst[p, i*e : i*e + e] = src_buffer[p, k : k + e] with k = list[i] of p's group of 16 partitions, on GpSimd.

    The list of a group is its 16 rows of `index`, read column by column (partition first), cut to `num_valid_indices`.
    An index counts elements of the flattened free dimensions of `src_buffer`, and `e` is `num_elem_per_idx`. Elements
    move bit by bit. `dst` has num_valid_indices * num_elem_per_idx elements per partition, in any shape.
    Sources: nki.isa.local_gather; test_nki_isa_local_gather.py; semantics rule 104.
    """

    engines = (Engine.gpsimd,)
    layout = "declared"

    dst = destination("P *", SBUF, ANY_DTYPE, doc="the gathered runs, in order of the list")
    src_buffer = source("P *", SBUF, ANY_DTYPE, doc="the tile to gather from")
    index = source("P *", SBUF, frozenset({dtypes.uint16}), doc="the index lists, 16 partitions each")
    num_elem_per_idx = attribute(INTEGER, 1, doc="elements fetched from each index on: 1, 2, 4, 8, 16 or 32")
    num_valid_indices = attribute(optional(INTEGER), None, doc="how much of each list counts; None: all")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {operand.name: (a.partitions, a.free) for operand, a in self.accesses()}

    @property
    def indices(self) -> int:
        """Length of the list of each group."""
        whole: int = self.index.free * CORE_PARTITIONS
        return whole if self.num_valid_indices is None else int(self.num_valid_indices)

    @rule("the partitions come in whole groups of 16 (semantics rule 104)")
    def cores_are_whole(self, target: Target) -> Fault | None:
        return whole_cores_fault("src_buffer", self.src_buffer)

    @rule("`dst` and `src_buffer` have one dtype")
    def dtypes_agree(self, target: Target) -> Fault | None:
        return other_dtype_fault(self.dst, self.src_buffer, "src_buffer")

    @rule("`num_elem_per_idx` is 1, 2, 4, 8, 16 or 32 and at most the free size of `src_buffer`")
    def run_is_legal(self, target: Target) -> Fault | None:
        if self.num_elem_per_idx in RUNS and self.num_elem_per_idx <= self.src_buffer.free:
            return None
        allowed = [run for run in RUNS if run <= self.src_buffer.free]
        return Fault(
            operand="num_elem_per_idx",
            found=self.num_elem_per_idx,
            allowed=f"{', '.join(map(str, allowed))} for {self.src_buffer.describe()}",
            remedy="fetch a run in several pieces, with an index for each",
            error=LimitError,
        )

    @rule("a list has from 1 to 4096 valid indices, and no more than `index` holds")
    def list_is_legal(self, target: Target) -> Fault | None:
        whole = self.index.free * CORE_PARTITIONS
        most = min(whole, target.gather_indices_max)
        if 1 <= self.indices <= most:
            return None
        return Fault(
            operand="num_valid_indices"
            if self.num_valid_indices is not None
            else f"index: {self.index.describe()}",
            found=f"{self.indices} indices per group of {CORE_PARTITIONS} partitions",
            allowed=f"1 to {most}: `index` holds {whole}, {target.name} takes {target.gather_indices_max}",
            remedy="gather in several instructions, each with a part of the list",
            error=LimitError,
        )

    @rule("`dst` has num_valid_indices * num_elem_per_idx elements per partition")
    def destination_fits(self, target: Target) -> Fault | None:
        wanted = self.indices * self.num_elem_per_idx
        if self.dst.free == wanted:
            return None
        return Fault(
            operand=f"dst: {self.dst.describe()}",
            found=f"{self.dst.free} elements per partition",
            allowed=f"{wanted}: {self.indices} indices of {self.num_elem_per_idx} elements",
            remedy=f"allocate dst as ({self.dst.partitions}, {wanted}), or pass num_valid_indices",
            error=OperandShapeError,
            text=f"`dst` has {self.dst.free} elements per partition, the gather gives {wanted}",
        )

    def semantics(self, a: Any) -> Steps:
        sizes = (self.indices, self.num_elem_per_idx)
        yield _gather, (self, bits(a.src_buffer), a.index, bits(a.dst), *sizes)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """The SDK 2.26 API text: n*e / min(4 / itemsize, e) accesses, each (28 + 4e) / 4e cycles.

        It prints the second factor as a divisor although it grows with the cost: that it multiplies is an ESTIMATE.
        """
        run = self.num_elem_per_idx
        width = min(max(1, 4 // self.src_buffer.dtype.itemsize), run)
        cycles = -(-self.indices * (28 + 4 * run) // (4 * width))
        return (streaming_phase(target, self.engine, cycles, (self.dst, self.src_buffer)),)


def _gather(node: Instruction, src: Array, index: Array, dst: Array, count: int, run: int) -> None:
    groups = len(index) // CORE_PARTITIONS
    lists = index.reshape(groups, CORE_PARTITIONS, -1).transpose(0, 2, 1).reshape(groups, -1)[:, :count]
    last = src.shape[1] - run
    if int(lists.max()) > last:
        used = np.arange(index.shape[1]) * CORE_PARTITIONS + np.arange(len(index))[:, None] % CORE_PARTITIONS
        check_indices(node, "index", np.where(used < count, index, 0), last)
    places = (lists[:, :, None].astype(np.intp) + np.arange(run)).reshape(groups, -1)
    dst[...] = np.take_along_axis(src, np.repeat(places, CORE_PARTITIONS, axis=0), axis=1)
