"""Tensors whose values belong to the program: `nl.shared_constant`, `nl.shared_identity_matrix` (rules 57, 183)."""

from __future__ import annotations

import os
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from nki import dtypes, errors
from nki.dtypes import DType, as_dtype, uint8
from nki.enums import MemoryRegion
from nki.ir import builder
from nki.ir.builder import Builder
from nki.ir.program import Access, Buffer
from nki.language.creation import checked_shape, ndarray
from nki.language.instructions import nisa
from nki.span import capture
from nki.tensor import NkiTensor
from nki.views import as_index

_REFUSED: Final = (dtypes.bool_, dtypes.float8_e4m3)


class _Made:
    """The constants of one program: tensors by their values, identity matrices by core, loop and dtype."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[Any, ...], Buffer] = {}
        self.identities: dict[tuple[Any, ...], list[NkiTensor]] = {}


_made: WeakKeyDictionary[Builder, _Made] = WeakKeyDictionary()


def shared_constant(constant: Any) -> NkiTensor:
    """A tensor in shared HBM with the values of a NumPy array, or of the `.npy` file at a path.

    It belongs to the program and is loaded with it; all cores see one tensor. Kernels only read it.
    """
    current = builder.require("nl.shared_constant")
    try:
        values, dtype = _values(constant, current)
    except errors.NkiError as error:
        error.message = f"nl.shared_constant: {error.message}"
        raise error.at(capture()) from None
    return NkiTensor._of(Access.whole(_constant(current, values, dtype)))


def _values(constant: Any, current: Builder) -> tuple[np.ndarray, DType]:
    if isinstance(constant, (str, os.PathLike)):
        constant = _from_file(os.fspath(constant), current)
    if (
        not hasattr(constant, "dtype")
        or not hasattr(constant, "__array__")
        or isinstance(constant, NkiTensor)
    ):
        raise errors.ArgumentError(
            f"a constant is an array that is known while staging, not {type(constant).__name__}",
            operand="constant",
            found=f"{constant!r:.80}",
            allowed="a NumPy array, or the path of a .npy file",
            remedy="make it with NumPy: np.array(values, np.float32)",
        )
    dtype = as_dtype(constant.dtype)
    if dtype in _REFUSED:
        raise errors.DtypeError(
            f"there are no constants of type {dtype}",
            operand="constant",
            found=dtype,
            allowed=", ".join(t for t in dtypes.ALL if t not in _REFUSED),
            remedy="use uint8, or float8_e4m3fn"
            if dtype is dtypes.bool_
            else "use float8_e4m3fn, or view uint8",
        )
    values = np.ascontiguousarray(np.asarray(constant))
    return values.reshape(checked_shape(values.shape or (1,), MemoryRegion.shared_hbm)), dtype


def _from_file(path: str, current: Builder) -> np.ndarray:
    if current.read_file is not None:
        current.read_file(path)
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise errors.ArgumentError(
            f"cannot read {path!r} as a .npy file: {error}",
            operand="constant",
            found=path,
            allowed="a file written by numpy.save",
            remedy="write it with np.save(path, array), or pass the array itself",
        ) from None
    if isinstance(values, np.ndarray):
        return values
    values.close()
    raise errors.ArgumentError(
        f"{path!r} holds several arrays",
        operand="constant",
        found=path,
        allowed="a file written by numpy.save",
        remedy="load it yourself and pass one of its arrays",
    )


def _constant(current: Builder, values: np.ndarray, dtype: DType, label: str = "") -> Buffer:
    """The buffer of these values, one for all cores and places that ask for it."""
    made = _made.setdefault(current, _Made())
    key = (values.shape, dtype, values.tobytes())
    buffer = made.buffers.get(key)
    if buffer is None:
        if current.core:
            raise errors.KernelError(
                f"core {current.core} makes a constant that core 0 does not make",
                found=f"{list(values.shape)} {dtype}",
                allowed="the same constants on every core",
                remedy="make both constants on every core and choose between them by nl.program_id(0)",
                span=capture(2),
            )
        memory = MemoryRegion.shared_hbm
        data = values.copy()
        data.flags.writeable = False
        buffer = current.buffer(
            values.shape, dtype, memory, label=label, role="constant", data=data, span=capture(2)
        )
        buffer.loop = None  # wherever it is first asked for, it is there from the start
        made.buffers[key] = buffer
    return buffer


def shared_identity_matrix(n: int, dtype: Any = uint8, dst: NkiTensor | None = None) -> NkiTensor:
    """The n x n identity matrix in SBUF.

    Matrices of one dtype share a tile, the largest that has been made; do not write into it. `dst`: a tile to fill
    instead of a shared one.
    """
    current = builder.require("nl.shared_identity_matrix")
    try:
        size, kind = as_index(n, "`n`"), as_dtype(dtype if dst is None else dst.dtype)
        values = np.eye(checked_shape((size, size), MemoryRegion.sbuf)[0], dtype=np.float32).astype(
            kind.numpy
        )
    except errors.NkiError as error:
        error.message = f"nl.shared_identity_matrix: {error.message}"
        raise error.at(capture()) from None
    if dst is not None:
        nisa.dma_copy(dst=dst, src=_identity(current, values, kind))
        return dst
    identities = _made.setdefault(current, _Made()).identities
    scopes = [
        (current.core, id(loop), kind) for loop in (None, *current.loops)
    ]  # a loop's tiles stay inside it
    for tile in (tile for scope in scopes for tile in identities.get(scope, ())):
        if tile.shape[0] >= size:
            return tile if tile.shape[0] == size else tile[0:size, 0:size]
    tile = ndarray((size, size), kind)
    nisa.dma_copy(dst=tile, src=_identity(current, values, kind))
    identities.setdefault(scopes[-1], []).append(tile)
    return tile


def _identity(current: Builder, values: np.ndarray, dtype: DType) -> NkiTensor:
    return NkiTensor._of(Access.whole(_constant(current, values, dtype, "identity_matrix")))
