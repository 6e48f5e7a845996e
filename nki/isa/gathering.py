"""What the gathers of GpSimd share: bits are moved by an index tensor, whose values are checked while it runs."""

from __future__ import annotations

from nki.errors import DynamicBoundsError
from nki.ir.instruction import Instruction
from nki.ir.program import Access
from nki.ir.verify import Fault
from nki.isa.apply import Array
from nki.isa.compute import conversion_fault


def other_dtype_fault(dst: Access, src: Access, name: str) -> Fault | None:
    """The fault if `dst` and the tile it is gathered from have two dtypes."""
    remedy = "gather first and convert with nisa.tensor_copy"
    return conversion_fault(dst, src, name, remedy=remedy, why="; a gather converts nothing")


def check_indices(instruction: Instruction, name: str, indices: Array, last: int) -> None:
    """Raise `DynamicBoundsError` for the first of the unsigned `indices` [partitions, ...] beyond `last`.

    The documentation leaves such an access undefined.
    """
    if not indices.size or int(indices.max()) <= last:
        return
    place = tuple(int(i[0]) for i in (indices > last).nonzero())
    found = int(indices[place])
    raise DynamicBoundsError(
        f"{instruction.mnemonic}: index {found} in partition {place[0]} of `{name}` leaves the tile it gathers from",
        operand=f"{name}[{', '.join(map(str, place))}]",
        found=f"index {found} in partition {place[0]}",
        allowed=f"0 to {last}",
        remedy="keep the indices inside the free size of the tile, counted in its elements",
        span=instruction.span,
    )
