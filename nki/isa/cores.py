"""The processors of GpSimd: each serves sixteen partitions and sees no others (trainium_inferentia2_arch.rst)."""

from __future__ import annotations

from nki.errors import OperandShapeError
from nki.ir.program import Access
from nki.ir.verify import Fault
from nki.target import get_target

CORE_PARTITIONS = get_target("trn1").gpsimd_core_partitions  # the same on every generation


def whole_cores_fault(name: str, access: Access) -> Fault | None:
    """The fault if a tile does not give every processor it uses all of its partitions."""
    if access.partitions % CORE_PARTITIONS == 0:
        return None
    return Fault(
        operand=f"{name}: {access.describe()}",
        found=f"{access.partitions} partitions",
        allowed=f"a multiple of {CORE_PARTITIONS} partitions",
        remedy=f"pad the tiles to {-(-access.partitions // CORE_PARTITIONS) * CORE_PARTITIONS} partitions",
        error=OperandShapeError,
        text=f"`{name}` has {access.partitions} partitions, each GpSimd core takes {CORE_PARTITIONS}",
    )


def first_partitions(access: Access) -> Access:
    """The part of a window that lies in the first partition of each processor, counted from the window's own."""
    if access.dynamic is not None:
        return access
    count = -(-access.partitions // CORE_PARTITIONS)
    shape, strides = (count, *access.shape[1:]), (access.strides[0] * CORE_PARTITIONS, *access.strides[1:])
    return Access(access.buffer, access.dtype, access.offset, shape, strides)
