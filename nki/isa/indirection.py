"""Tensor indirection (trn3) on compute instructions: where the tiles of offsets may start (semantics rule 43)."""

from __future__ import annotations

from nki.enums import MemoryRegion
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access
from nki.ir.verify import Fault
from nki.target import Target


def is_indirect(access: Access) -> bool:
    """Whether a view was made by `.indirect()`."""
    return access.dynamic is not None and access.dynamic.kind == "indirect"


def offsets_fault(instruction: Instruction, target: Target) -> Fault | None:
    """The fault if offsets start off a quadrant, or elsewhere than the data that pass the engine with them."""
    if not instruction.is_dynamic:
        return None
    data = next((a for o, a in instruction.accesses() if o.indirect and not o.is_output), None)
    for operand, access in instruction.accesses():
        index = access.dynamic.index if access.dynamic is not None and is_indirect(access) else None
        if not isinstance(index, Access):
            continue
        start, size = index.start_partition, target.quadrant_partitions
        if start % size:
            return _fault(
                operand, access, f"offsets from partition {start}", f"a start at a multiple of {size}"
            )
        wanted = _wanted(operand, access, data)
        if wanted is not None and start != wanted:
            return _fault(
                operand, access, f"offsets from partition {start}", f"partition {wanted}, with the data"
            )
    return None


def _wanted(operand: Operand, access: Access, data: Access | None) -> int | None:
    """The partition that offsets must start at: that of the operand itself, or for a destination of the source."""
    if not operand.is_output:
        return access.start_partition
    if data is None:
        return None
    if data.memory is MemoryRegion.sbuf:
        return data.start_partition
    index = data.dynamic.index if data.dynamic is not None else None
    return index.start_partition if isinstance(index, Access) else None


def _fault(operand: Operand, access: Access, found: str, allowed: str) -> Fault:
    return Fault(
        operand=f"{operand.name}: {access.describe()}",
        found=found,
        allowed=allowed,
        remedy="place the offsets in a tile of their own that starts there",
    )
