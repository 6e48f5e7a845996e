"""What a transpose of gathered rows asks of its source and of its index tensor (semantics rule 99)."""

from __future__ import annotations

from nki import dtypes, errors
from nki.ir.program import Access
from nki.ir.verify import Fault
from nki.isa.dma_rules import by_rows
from nki.target import Target

HALF_WORD = 2
"""Bytes of the elements that are transposed while being gathered."""


def gather_fault(src: Access, target: Target) -> Fault | None:
    """The fault of a source with an index per row; `None` for other sources."""
    if src.dynamic is None or not by_rows(src):
        return None
    if not target.hwdge:
        return Fault(
            operand="src",
            found=f"an index per row on {target.name}",
            allowed="trn2 and later",
            remedy="gather with nisa.dma_copy and transpose the tile",
            error=errors.TargetError,
        )
    return _rows_fault(src, target) or _index_fault(src, target)


def _rows_fault(src: Access, target: Target) -> Fault | None:
    shape, group = src.shape, target.dma_engines
    if src.dtype.itemsize != HALF_WORD:
        found, allowed = str(src.dtype), "a dtype of 2 bytes"
    elif shape[-1] > target.pmax:
        found, allowed = f"a last axis of {shape[-1]}", f"at most {target.pmax}"
    elif shape[0] % group:
        found, allowed = f"{shape[0]} rows", f"a multiple of {group}"
    elif len(shape) == 4 and 1 not in shape[1:3]:
        found, allowed = f"inner axes {shape[1]} and {shape[2]}", "one of them 1"
    else:
        return None
    return Fault(
        operand=f"src: {src.describe()}",
        found=found,
        allowed=allowed,
        remedy="gather with nisa.dma_copy and transpose the tile, or gather in pieces",
    )


def _index_fault(src: Access, target: Target) -> Fault | None:
    index = src.dynamic.index if src.dynamic is not None else None
    if not isinstance(index, Access):
        return None
    group = target.dma_engines
    legal = range(group, target.pmax + 1, group)
    if index.dtype is not dtypes.uint32:
        found, allowed = str(index.dtype), "uint32"
    elif len(index.shape) != 2:
        found, allowed = f"{len(index.shape)} dimensions", "2"
    elif index.shape[0] not in legal:
        found, allowed = f"{index.shape[0]} partitions", f"{group} to {target.pmax} in steps of {group}"
    elif index.shape[1] > 1 and index.shape[0] != target.pmax:
        found, allowed = f"shape {list(index.shape)}", f"{target.pmax} partitions with several columns"
    else:
        return None
    return Fault(
        operand=f"the index of src: {index.describe()}",
        found=found,
        allowed=allowed,
        remedy="load the indices into a tile of that form",
    )
