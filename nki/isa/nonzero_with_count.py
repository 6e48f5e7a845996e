"""`nisa.nonzero_with_count`: where a row is not zero, and how often."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.errors import LimitError, OperandShapeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import INTEGER, SBUF, TEXT, attribute, destination, optional, source
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array
from nki.isa.compute import ComputeInstruction
from nki.isa.cores import CORE_PARTITIONS, first_partitions
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.target import Target

CYCLES_PER_ELEMENT = 2
_INT32 = np.iinfo(np.int32)


@instruction
class nonzero_with_count(ComputeInstruction):
    """dst[p] = [index_offset + i for each src[p, i] != 0, then padding_val, and the count in the last slot].

    Only partitions 0, 16, 32, ... of the tiles are read and written, the first of each GpSimd core; the others keep
    what they hold, the slot of the count included. `dst` has one element more than `src`. A NaN is not zero.
    Sources: nki.isa.nonzero_with_count; semantics rule 107.
    """

    since = nc_version.gen3
    engines = (Engine.gpsimd,)
    layout = "declared"

    dst = destination("P *", SBUF, frozenset({dtypes.int32}), reads=True, doc="indices, padding, count")
    src = source("P *", SBUF, frozenset({dtypes.float32, dtypes.int32}), doc="the rows to search")
    index_offset = attribute(INTEGER, 0, doc="added to every index (int32)")
    padding_val = attribute(INTEGER, -1, doc="fills the slots between the indices and the count (int32)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {operand.name: (a.partitions, a.free) for operand, a in self.accesses()}

    def reads(self) -> list[Access]:
        return [first_partitions(self.src), *self.index_windows()]

    def writes(self) -> list[Access]:
        return [first_partitions(self.dst)]

    @rule("`dst` has one element more per partition than `src` (semantics rule 107)")
    def destination_fits(self, target: Target) -> Fault | None:
        if self.dst.free == self.src.free + 1:
            return None
        return Fault(
            operand=f"dst: {self.dst.describe()}",
            found=f"{self.dst.free} elements per partition",
            allowed=f"{self.src.free + 1}: an index for each element of `src`, and the count",
            remedy=f"allocate dst as ({self.dst.partitions}, {self.src.free + 1})",
            error=OperandShapeError,
        )

    @rule("`index_offset` and `padding_val` are 32-bit integers")
    def numbers_are_int32(self, target: Target) -> Fault | None:
        for name in ("index_offset", "padding_val"):
            value = self.__dict__[name]
            if not _INT32.min <= value <= _INT32.max:
                return Fault(
                    operand=name,
                    found=value,
                    allowed=f"{_INT32.min} to {_INT32.max}",
                    remedy="pass a number that int32 holds",
                    error=LimitError,
                    text=f"`{name}` must be a 32-bit integer",
                )
        return None

    def semantics(self, a: Any) -> Steps:
        yield _search, (a.src, a.dst, self.index_offset, self.padding_val)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: 2 cycles an element, a scan with data-dependent writes; no figure is published."""
        cycles = stream_cycles(target, (self.src,), CYCLES_PER_ELEMENT)
        return (streaming_phase(target, self.engine, cycles, (self.src, self.dst)),)


def _search(src: Array, dst: Array, offset: int, padding: int) -> None:
    for row, out in zip(src[::CORE_PARTITIONS], dst[::CORE_PARTITIONS]):
        found = np.flatnonzero(row)
        out[: len(found)] = (found + offset).astype(np.int32)
        out[len(found) : -1] = padding
        out[-1] = len(found)
