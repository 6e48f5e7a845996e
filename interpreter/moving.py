"""Binding operands whose place the device decides: scratch for the window, with transfers around the instruction.

Sources are fetched before the instruction's own calls, destinations stored after them. Where transfers out of bounds
are dropped, the fetch marks which elements arrived, and only what was made of them is stored (semantics rules 17, 94).
Transfers move stored bits, so every window is seen as unsigned integers of its width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interpreter.arrange import Shown
from interpreter.dynamic import READERS, WRITERS, Place, store_marked
from interpreter.memory import Storage, byte_layout, view
from interpreter.workspace import Scratch
from nki import dtypes
from nki.dtypes import caster, round_tf32
from nki.ir.control import Register, offset_group
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access
from nki.target import get_target

if TYPE_CHECKING:
    from interpreter.bind import Binder, Call

_MACHINE = get_target("trn3")  # tensor indirection exists from there on


def bits_of(array: np.ndarray) -> np.ndarray:
    """The same bytes as unsigned integers."""
    return array if array.dtype.kind == "u" else array.view(f"u{array.itemsize}")


def marks(instruction: Instruction, scratch: Scratch) -> dict[str, np.ndarray]:
    """With transfers dropped: for each source with a dynamic place an array that will say what was fetched, and for the
    destination the same as seen from there."""
    found: dict[str, np.ndarray] = {}
    accesses = {operand.name: access for operand, access in instruction.pairs}
    for name, written in instruction.kept_if_skipped().items():
        access = accesses.get(name)
        if access is not None and access.dynamic is not None:
            found[name] = scratch.array(access.shape, np.dtype(np.bool_))
            found[written] = instruction.written_where(found[name]).reshape(accesses[written].shape)
    return found


def bind_moving(
    binder: Binder, instruction: Instruction, operand: Operand, access: Access, shown: Shown
) -> np.ndarray:
    """The array that stands for a window with a dynamic place; its transfers join those of the binder."""
    dynamic = access.dynamic
    assert dynamic is not None
    stored = binder.scratch.array(access.shape, access.dtype.numpy)
    converted = shown.compute != stored.dtype
    array = binder.scratch.array(shown.shape, shown.compute) if converted else stored.reshape(shown.shape)
    seen = array.reshape(access.shape)
    place = _place(instruction, operand, access)
    window = (places(binder, access, place.legal), bits_of(stored))
    index = index_array(binder, access)
    if operand.is_output and sum(other.is_output for other, _ in instruction.pairs) > 1:
        asked = index  # another output may overwrite it
        index = binder.scratch.array(asked.shape, asked.dtype)
        binder.before.append((np.copyto, (index, asked)))
    mark = binder.marks.get(operand.name)
    if operand.direction != "out":
        fetch = (READERS[dynamic.kind], (window[1], window[0], index, place, mark))
        binder.before.append(fetch)
        if converted:
            binder.before += _copy(seen, stored)
    if operand.is_output:
        if converted:
            binder.after += _copy(stored, seen)
        if access.dtype is dtypes.tfloat32 and instruction.compute_of(operand) != "raw":
            binder.after.append((round_tf32, (stored, stored)))
        binder.after.append((WRITERS[dynamic.kind], (*window, index, place, mark)))
    return array


def _copy(dst: np.ndarray, src: np.ndarray) -> list[Call]:
    return [(np.copyto, (dst, src))] if dst.dtype == src.dtype else [*caster(dst, src)]


def _place(instruction: Instruction, operand: Operand, access: Access) -> Place:
    dynamic = access.dynamic
    assert dynamic is not None
    reach = sum((n - 1) * abs(stride) for n, stride in zip(access.shape[1:], access.strides[1:]))
    return Place(
        instruction.mnemonic,
        operand.name,
        access,
        access.places(),
        instruction.span,
        skip=bool(instruction.kept_if_skipped()),
        apart=reach < abs(dynamic.stride),
        once=operand.is_output and instruction.rows_named_once(),
        group=offset_group(instruction.engine, _MACHINE),
    )


def places(binder: Binder, access: Access, legal: int) -> np.ndarray:
    """All legal places of a dynamic window, as bits, with one more axis in front (see `dynamic.py`)."""
    storage = binder.storage_of(access.buffer)
    return _window(binder, access, storage, _places_in(storage, access, legal))


def _places_in(storage: Storage, access: Access, legal: int) -> tuple[Any, Any, int]:
    """Shape, byte strides and byte offset of `places`."""
    dynamic = access.dynamic
    assert dynamic is not None
    offset, strides = byte_layout(access, storage.pitch)
    step = dynamic.stride * access.dtype.itemsize
    shape = access.shape
    if dynamic.kind == "indirect":
        shape, strides = (access.partitions, legal), (strides[0], step)
    elif dynamic.kind == "vector":
        shape, strides = (legal, *shape[1:]), (step, *strides[1:])
    else:
        shape, strides = (legal, *shape), (step, *strides)
    return shape, strides, offset


def flag_calls(
    binder: Binder, instruction: Instruction, operand: Operand, flags: np.ndarray, flag: bool
) -> list[Call]:
    """Calls that set the flags, one for each byte of the tensor, of the window where an output will be written."""
    access = instruction.__dict__[operand.name]
    dynamic = access.dynamic
    place = _place(instruction, operand, access)
    shape, strides, offset = _places_in(Storage(flags, 0, access.buffer.partition_bytes), access, place.legal)
    size = access.dtype.itemsize
    window = np.ndarray(shape, f"u{size}", flags, offset, strides)
    values = np.full(access.shape, int.from_bytes(bytes([flag] * size), "little"), window.dtype)
    return [(WRITERS[dynamic.kind], (window, values, index_array(binder, access), place))]


def _window(binder: Binder, access: Access, storage: Storage, layout: tuple[Any, Any, int]) -> np.ndarray:
    """An array on stored bits, known to the binder if it lies in a tensor from outside."""
    shape, strides, offset = layout
    dtype = np.dtype(f"u{access.dtype.itemsize}")
    window = np.ndarray(shape, dtype, storage.base, offset + storage.offset, strides)
    if storage.external:
        binder.external.append((window, access.buffer.name, strides, offset + storage.offset))
    return window


def index_array(binder: Binder, access: Access) -> np.ndarray:
    """Where the index values of a window stand: a register, or a tile as [partitions, columns]."""
    dynamic = access.dynamic
    assert dynamic is not None
    if isinstance(dynamic.index, Register):
        return binder.register(dynamic.index)
    index = view(binder.storage_of(dynamic.index.buffer), dynamic.index)
    return index.reshape(index.shape[0], -1) if index.ndim != 2 else index


def fetched(binder: Binder, access: Access) -> np.ndarray:
    """A copy of what a window with a dynamic place holds now, as far as it lies in its tensor."""
    dynamic = access.dynamic
    assert dynamic is not None
    values = np.zeros(access.shape, access.dtype.numpy)
    group = _MACHINE.gpsimd_core_partitions
    place = Place("tensor", "value", access, access.places(), skip=True, group=group)
    window = places(binder, access, place.legal)
    READERS[dynamic.kind](bits_of(values), window, index_array(binder, access), place)
    return values


def store_calls(binder: Binder, access: Access, values: np.ndarray, where: np.ndarray) -> list[Call]:
    """Calls that store only what is marked of an operand with a fixed place."""
    storage = binder.storage_of(access.buffer)
    offset, strides = byte_layout(access, storage.pitch)
    window = _window(binder, access, storage, (access.shape, strides, offset))
    stored = values.reshape(access.shape)
    calls: list[Call] = []
    if stored.dtype != access.dtype.numpy:
        stored = binder.scratch.array(access.shape, access.dtype.numpy)
        calls += caster(stored, values.reshape(access.shape))
    calls.append((store_marked, (window, bits_of(stored), where)))
    return calls
