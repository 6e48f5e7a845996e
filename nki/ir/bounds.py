"""Which windows are well-formed: inside their storage, or, if the device chooses their place, inside it at index 0.

Which index values are legal beyond 0 is known only while running, and checked there.
"""

from __future__ import annotations

from math import prod

from nki import errors
from nki.enums import MemoryRegion
from nki.ir.control import Dynamic, Register
from nki.ir.notation import DYNAMIC_WORDS, access_text
from nki.ir.program import Access


def check_window(access: Access, what: str = "") -> None:
    """Raise if a window leaves its buffer, or if the index that places it is no index. `what` begins the message."""
    if access.dynamic is not None:
        _check_dynamic(access, access.dynamic, what)
    if not fits(access):
        raise outside(access, what)


def fits(access: Access) -> bool:
    """Whether every element of a window lies in its buffer; on chip, in the partition it belongs to.

    A window that the device places is looked at where index 0 puts it.
    """
    buffer, shape, strides = access.buffer, access.shape, access.strides
    if not shape or min(shape) < 1 or len(shape) != len(strides):
        return False
    if access.dynamic is not None:
        return fits(_at_zero(access, access.dynamic))
    itemsize = access.dtype.itemsize
    if not buffer.memory.on_chip:
        low, high = access.extent()
        return low >= 0 and (high + 1) * itemsize <= buffer.nbytes
    row = buffer.partition_bytes
    partition, column = divmod(access.offset * itemsize, row)
    step = strides[0] * itemsize
    last = partition + (shape[0] - 1) * (step // row)
    if partition < 0 or not 0 <= last < buffer.shape[0] or partition >= buffer.shape[0]:
        return False
    if step % row and shape[0] > 1:
        return False
    low = high = column
    for size, stride in zip(shape[1:], strides[1:]):
        reach = (size - 1) * stride * itemsize
        if reach < 0:
            low += reach
        else:
            high += reach
    return low >= 0 and high + itemsize <= row


def _at_zero(access: Access, dynamic: Dynamic) -> Access:
    """The elements of a dynamic window at index 0: rows, or elements of a row, that are placed singly all lie there."""
    shape, strides = access.shape, access.strides
    if dynamic.kind == "vector":
        shape = (1, *shape[1:])
    elif dynamic.kind == "indirect":
        shape, strides = shape[:1], strides[:1]
    return Access(access.buffer, access.dtype, access.offset, shape, strides)


def outside(access: Access, what: str = "") -> errors.BoundsError:
    """The error for a window that does not fit its buffer."""
    buffer = access.buffer
    size = f"{prod(buffer.shape)} elements"
    if buffer.memory.on_chip:
        size = f"{buffer.shape[0]} partitions of {buffer.partition_bytes} bytes"
    at_zero = " at index 0" if access.dynamic is not None else ""
    return errors.BoundsError(
        f"{what}{'is a window' if what else 'a window'} that leaves %{buffer.name}{at_zero}",
        operand=access_text(access),
        found=f"shape {list(access.shape)}, strides {list(access.strides)}, offset {access.offset}",
        allowed=f"windows inside {buffer.describe()}: {size}",
        remedy="keep the window inside the buffer; on chip each row stays in its partition",
    )


def _check_dynamic(access: Access, dynamic: Dynamic, what: str) -> None:
    if dynamic.kind not in DYNAMIC_WORDS or dynamic.count < 1:
        raise errors.KernelError(
            f"{what}is placed by no index",
            found=f"kind {dynamic.kind!r}, count {dynamic.count}",
            allowed=f"kinds {', '.join(DYNAMIC_WORDS)}; a count of at least 1",
            remedy="give the size of the dimension that is indexed",
        )
    memory = access.memory
    if (dynamic.kind == "vector" and not memory.is_hbm) or (
        dynamic.kind == "indirect" and not memory.on_chip
    ):
        on_chip = dynamic.kind == "indirect"
        raise errors.MemoryError_(
            f"{what}chooses {'elements of each partition' if on_chip else 'each row'} by an index, in {memory}",
            operand=access_text(access),
            found=memory.value,
            allowed="sbuf or psum" if on_chip else "private_hbm or shared_hbm",
            remedy="move the tensor there, or index it with one value",
        )
    if dynamic.kind == "indirect" and len(access.shape) != 2:
        raise errors.ShapeError(
            f"{what}chooses elements of each partition and has {len(access.shape)} dimensions",
            operand=access_text(access),
            found=list(access.shape),
            allowed="two dimensions: partitions and elements",
            remedy="index a window of two dimensions",
        )
    if isinstance(dynamic.index, Register):
        if dynamic.kind != "scalar":
            raise _no_index(access, what, f"the register ${dynamic.index.name}")
        return
    _check_index(access, dynamic, dynamic.index, what)


def _check_index(access: Access, dynamic: Dynamic, index: Access, what: str) -> None:
    """An index window: static, integers in SBUF, with as many values as the kind of index needs."""
    if not fits(index):
        raise outside(index, f"{what}has an index which ")
    wanted = {"scalar": 1, "vector": access.shape[0], "indirect": 1}[dynamic.kind]
    enough = index.size == wanted if dynamic.kind == "scalar" else index.size >= wanted
    static = index.dynamic is None
    if not (static and enough and index.memory is MemoryRegion.sbuf and index.dtype.is_integer):
        raise _no_index(access, what, f"{index.describe()}{'' if static else ', itself indexed'}")


def _no_index(access: Access, what: str, found: str) -> errors.ShapeError:
    return errors.ShapeError(
        f"{what}has no index of the form it needs",
        operand=access_text(access),
        found=found,
        allowed=(
            ".at: a register, or integers in sbuf, one value; .at_rows: integers in sbuf, one for each row; "
            ".at_elements: integers in sbuf"
        ),
        remedy="load the index into a tile in sbuf of that shape first",
    )
