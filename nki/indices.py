"""What may be an index of the device: registers and tiles in SBUF, with the errors for what users pass instead."""

from __future__ import annotations

from typing import Any

from nki import dtypes, errors
from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.ir.control import Register
from nki.ir.program import Access

WORDS = (dtypes.int32, dtypes.uint32)
"""Types of index tiles: what the address hardware reads."""

INTEGERS = tuple(dtype for dtype in dtypes.ALL if dtype.is_integer)
"""Types of offsets of tensor indirection; the documentation names none."""


def is_one_value(value: Any) -> bool:
    """Whether a subscript is a register or a tensor, which the device must read."""
    return isinstance(getattr(value, "register", None), Register) or hasattr(value, "access")


def scalar_index(value: Any, what: str) -> Register | Access:
    """A register, or a window on one 32-bit integer in SBUF."""
    register = getattr(value, "register", None)
    if isinstance(register, Register):
        return register
    access = index_tile(value, what, "a register, or a tile in SBUF with one value", WORDS)
    if access.size != 1:
        raise errors.ShapeError(
            f"{what} has {access.size} values; one index moves the whole window",
            operand=what,
            found=access.describe(),
            allowed="a tile of shape (1, 1)",
            remedy="for an index per row pass vector_offset= to ap, or call vector_select",
        )
    return access


def index_tile(value: Any, what: str, wanted: str, kinds: tuple[DType, ...]) -> Access:
    """A window in SBUF with indices of one of the types `kinds`."""
    access = getattr(value, "access", None)
    if not isinstance(access, Access):
        number = isinstance(value, int)
        raise errors.ArgumentError(
            f"{what} must be {wanted}, got {type(value).__name__}",
            operand=what,
            found=f"{value!r:.80}",
            allowed=wanted,
            remedy="numbers known while staging belong into the static offset"
            if number
            else f"pass {wanted}",
        )
    if access.dynamic is not None:
        raise errors.KernelError(
            f"{what} has a dynamic place itself",
            operand=what,
            found=access.describe(),
            allowed="a tile with a fixed place",
            remedy="copy the index into a tile of its own first",
        )
    if access.memory is not MemoryRegion.sbuf:
        raise errors.MemoryError_(
            f"{what} must live in sbuf; {access.describe()} does not",
            operand=what,
            found=access.memory.value,
            allowed="sbuf",
            remedy="load the index first: nisa.dma_copy(dst=tile, src=...)",
        )
    if access.dtype not in kinds:
        raise errors.DtypeError(
            f"{what} holds {access.dtype}, indices are integers",
            operand=what,
            found=access.describe(),
            allowed=", ".join(kinds),
            remedy="convert it first: nisa.tensor_copy(dst=int32_tile, src=...)",
        )
    return access


def row_index(value: Any, what: str) -> Access:
    """A window in SBUF with one 32-bit index per row, row p in partition p (more columns: see `dma_transpose`)."""
    return index_tile(value, what, "a tile in SBUF with one index per partition", WORDS)


def refuse_second(access: Access, what: str) -> None:
    """Rule 41: one dynamic index per view."""
    if access.dynamic is not None:
        raise errors.KernelError(
            f"{what}: the view carries a dynamic index already, and cannot take another pattern or index",
            found=access.describe(),
            allowed="one dynamic index per view (is_indirect() tells)",
            remedy="start from the tensor itself, and put both indices into one, computed on a tile",
        )
