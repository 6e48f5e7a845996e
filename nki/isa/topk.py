"""`nisa.topk`: the largest elements of a row that is spread over sixteen partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.errors import LimitError, OperandShapeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import INTEGER, SBUF, TEXT, Operand, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array
from nki.isa.compute import ComputeInstruction
from nki.isa.cores import CORE_PARTITIONS, whole_cores_fault
from nki.isa.costs import streaming_phase
from nki.isa.export import instruction
from nki.target import Target

BF16 = frozenset({dtypes.bfloat16})


@instruction
class topk(ComputeInstruction):
    """val_dst[p] = the K largest of the n elements of p's group, ascending; idx_dst[p] = their positions. GpSimd.

    Sixteen partitions hold one row as a snake: element i lies in partition i % 16, column i // 16. K is the free size
    of `val_dst`. All sixteen partitions of a group receive the group's result. Of equal values those at lower positions
    are taken, and the lower position comes later; NaN counts as the smallest. The page leaves these three open.
    Sources: nki.isa.topk; semantics rule 108.
    """

    engines = (Engine.gpsimd,)
    layout = "declared"

    val_dst = destination("P F", SBUF, BF16, doc="the largest values, ascending")
    idx_dst = destination("P F", SBUF, frozenset({dtypes.uint32}), doc="their positions in the snake")
    src = source("P *", SBUF, BF16, doc="the snakes, one for each 16 partitions")
    n = attribute(INTEGER, doc="elements of each snake that count")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute_of(self, operand: Operand) -> str:
        return "raw" if operand.name == "idx_dst" else "float32"

    def array_shapes(self) -> dict[str, Shape]:
        return {operand.name: (a.partitions, a.free) for operand, a in self.accesses()}

    @rule("the partitions come in whole groups of 16 (semantics rule 108)")
    def cores_are_whole(self, target: Target) -> Fault | None:
        return whole_cores_fault("src", self.src)

    @rule("`n` is at least 8 and below 65536")
    def count_is_legal(self, target: Target) -> Fault | None:
        if target.topk_fmin <= self.n <= target.topk_fmax:
            return None
        return Fault(
            operand="n",
            found=self.n,
            allowed=f"{target.topk_fmin} to {target.topk_fmax} on {target.name}",
            remedy="pad short rows with -inf; search long ones in parts and then among the results",
            error=LimitError,
        )

    @rule("`src` holds n elements per group")
    def source_is_complete(self, target: Target) -> Fault | None:
        columns = -(-self.n // CORE_PARTITIONS)
        if self.src.free >= columns:
            return None
        return Fault(
            operand=f"src: {self.src.describe()}",
            found=f"{self.src.free} columns of {CORE_PARTITIONS} elements",
            allowed=f"at least {columns} columns for n = {self.n}",
            remedy=f"allocate src as ({self.src.partitions}, {columns}), or pass a smaller n",
            error=OperandShapeError,
        )

    @rule("K, the free size of `val_dst`, is at most n and below 32768")
    def results_are_legal(self, target: Target) -> Fault | None:
        most = min(self.n, target.topk_kmax)
        if self.val_dst.free <= most:
            return None
        return Fault(
            operand=f"val_dst: {self.val_dst.describe()}",
            found=f"K = {self.val_dst.free}",
            allowed=f"at most {most} for n = {self.n} on {target.name}",
            remedy="allocate val_dst and idx_dst with fewer columns",
            error=LimitError,
        )

    def semantics(self, a: Any) -> Steps:
        yield _largest, (a.src, a.val_dst, a.idx_dst, self.n)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (nki.isa.topk): 4n + K cycles. ESTIMATE: the start of a GpSimd instruction comes on top."""
        cycles = 4 * self.n + self.val_dst.free
        return (streaming_phase(target, self.engine, cycles, (self.val_dst, self.idx_dst, self.src)),)


def _largest(src: Array, values: Array, places: Array, n: int) -> None:
    count = values.shape[1]
    groups = len(src) // CORE_PARTITIONS
    snakes = src.reshape(groups, CORE_PARTITIONS, -1).transpose(0, 2, 1).reshape(groups, -1)[:, :n]
    order = np.argsort(-snakes, axis=1, kind="stable")[:, count - 1 :: -1]
    values[...] = np.repeat(np.take_along_axis(snakes, order, axis=1), CORE_PARTITIONS, axis=0)
    places[...] = np.repeat(order, CORE_PARTITIONS, axis=0)
