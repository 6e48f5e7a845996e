"""Collectives whose block sizes are known only while running: the metadata tensor, and what one rank alone does.

The metadata are rows of one number for each rank: how much is sent, from where, how much was received (filled in by
the collective), and, if asked for, where it is put. Tensors are flat lists of elements.
"""

from __future__ import annotations

from typing import Any

from nki import dtypes, errors
from nki.collectives.single import SingleCollective
from nki.ir.instruction import Steps
from nki.ir.operands import HBM_OR_SBUF, destination
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array
from nki.target import Target

COUNT, START, RECEIVED, PLACE = range(4)
"""The rows of the metadata."""


def metadata(doc: str) -> Any:
    """Declare the metadata tensor."""
    return destination("*", HBM_OR_SBUF, frozenset({dtypes.uint32}), reads=True, doc=doc)


class VariableCollective(SingleCollective, abstract=True):
    """A collective driven by `metadata_tensor`; what it does not receive keeps its old content."""

    metadata_tensor: Any
    recv_counts_known: Any
    has_rdispls: Any

    def rows(self) -> int:
        """Rows of the metadata."""
        return PLACE + 1 if self.has_rdispls else PLACE

    def array_shapes(self) -> dict[str, Shape]:
        return {**super().array_shapes(), "metadata_tensor": (self.rows(), self.ranks)}

    def reads(self) -> list[Access]:
        rows = [COUNT, START, *([PLACE] if self.has_rdispls else [])]
        return [
            *self.tensors("srcs"),
            *(row_of(self.metadata_tensor, row) for row in rows),
            *self.index_windows(),
        ]

    def writes(self) -> list[Access]:
        received = [] if self.recv_counts_known else [row_of(self.metadata_tensor, RECEIVED)]
        return [*self.tensors("dsts"), *received]

    def written_in_part(self, access: Access) -> bool:
        return access in self.tensors("dsts") or super().written_in_part(access)

    @rule("the metadata have a row of one number a rank for each quantity (semantics rule 138)")
    def metadata_fit(self, target: Target) -> Fault | None:
        access = self.metadata_tensor
        wanted: Shape = (self.rows(), self.ranks)
        if access.memory.on_chip:
            wanted = (1, *wanted)
        if access.shape == wanted:
            return None
        return Fault(
            operand=f"metadata_tensor: {access.describe()}",
            found=f"shape {list(access.shape)}",
            allowed=f"{list(wanted)} with has_rdispls={self.has_rdispls} and {self.ranks} ranks",
            remedy=f"allocate it as {list(wanted)}: counts, starts, counts received"
            + (", places" if self.has_rdispls else ""),
            error=errors.OperandShapeError,
        )

    @rule("the metadata lie side by side in memory (semantics rule 138)")
    def metadata_are_contiguous(self, target: Target) -> Fault | None:
        if self.metadata_tensor.dense():
            return None
        return Fault(
            operand=f"metadata_tensor: {self.metadata_tensor.describe()}",
            found=f"strides {list(self.metadata_tensor.strides)}",
            allowed="a contiguous tensor",
            remedy="copy the metadata into a tensor of their own",
            error=errors.OperandShapeError,
        )

    @rule("the destination has a slot of one size for each rank (semantics rule 138)")
    def slots_are_equal(self, target: Target) -> Fault | None:
        dst = self.tensors("dsts")[0]
        if self.has_rdispls or dst.size % self.ranks == 0:
            return None
        return Fault(
            operand=f"dsts: {dst.describe()}",
            found=f"{dst.size} elements for {self.ranks} ranks",
            allowed=f"a multiple of {self.ranks}",
            remedy="pad the destination",
            error=errors.OperandShapeError,
        )

    def semantics(self, a: Any) -> Steps:
        yield exchange_alone, (a.srcs[0], a.dsts[0], a.metadata_tensor, self)


def row_of(metadata: Access, row: int) -> Access:
    """One row of the metadata."""
    if metadata.dynamic is not None:
        return metadata
    axis = len(metadata.shape) - 2
    offset = metadata.offset + row * metadata.strides[axis]
    shape = (*metadata.shape[:axis], 1, *metadata.shape[axis + 1 :])
    return Access(metadata.buffer, metadata.dtype, offset, shape, metadata.strides)


def exchange_alone(src: Array, dst: Array, rows: Array, instruction: VariableCollective) -> None:
    """What happens in a group of one rank: its own block comes back."""
    count, start = int(rows[COUNT, 0]), int(rows[START, 0])
    place = int(rows[PLACE, 0]) if instruction.has_rdispls else 0
    for name, first, size in (("srcs", start, len(src)), ("dsts", place, len(dst))):
        if first + count > size:
            raise errors.BoundsError(
                f"{instruction.mnemonic}: the metadata reach beyond `{name}[0]`",
                operand=f"{name}: {instruction.tensors(name)[0].describe()}",
                found=f"{count} elements from element {first}",
                allowed=f"{size} elements",
                remedy="correct the counts and displacements in metadata_tensor (elements, not bytes)",
                span=instruction.span,
            )
    dst[place : place + count] = src[start : start + count]
    if not instruction.recv_counts_known:
        rows[RECEIVED, 0] = count
