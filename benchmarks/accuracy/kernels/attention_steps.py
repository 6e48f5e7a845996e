"""Steps that the attention kernels of this package share: loads, columns of statistics, transposes. No kernel here."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

SIDE = 128
"""Rows of a tile: partitions, columns of a stationary operand, and the side of a transpose."""

BANK = 512
"""Columns of a float32 PSUM bank and of a moving operand."""


def in_sbuf(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A new tile in SBUF."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def in_psum(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A new tile in PSUM."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def piece(index: int, width: int = SIDE) -> slice:
    """The index-th run of `width` elements."""
    return slice(index * width, (index + 1) * width)


def load(window: Any, dtype: Any = None) -> Any:
    """A window of HBM as a new tile, converted by the DMA if `dtype` is another one."""
    tile = in_sbuf(window.shape, window.dtype if dtype is None else dtype)
    nisa.dma_copy(dst=tile, src=window)
    return tile


def load_transposed(window: Any, dtype: Any = None) -> Any:
    """The transpose of a window [rows, columns] of HBM as a new tile: nl.load_transpose2d.

    The performance guide says that the DMA engines transpose on the fly; they do not convert, so a cast follows.
    """
    tile = in_sbuf((window.shape[1], window.shape[0]), window.dtype)
    nisa.dma_transpose(dst=tile, src=window)
    return tile if dtype is None or dtype == window.dtype else copied(tile, dtype)


def copied(tile: Any, dtype: Any) -> Any:
    """The tile in SBUF, in another type."""
    copy = in_sbuf(tile.shape, dtype)
    nisa.tensor_copy(dst=copy, src=tile)
    return copy


def transposed_in_psum(tile: Any) -> Any:
    """The transpose of a tile [rows, columns], by the Tensor engine."""
    result = in_psum((tile.shape[1], tile.shape[0]), tile.dtype)
    nisa.nc_transpose(dst=result, data=tile)
    return result


def transposed(tile: Any, dtype: Any = None) -> Any:
    """The transpose of a tile in SBUF: by the Tensor engine, and a copy out of PSUM."""
    return copied(transposed_in_psum(tile), tile.dtype if dtype is None else dtype)


def product(stationary: Any, moving: Any, is_transpose: bool = False) -> Any:
    """stationary.T @ moving, alone in its PSUM bank."""
    result = in_psum((stationary.shape[1], moving.shape[1]))
    nisa.nc_matmul(dst=result, stationary=stationary, moving=moving, is_transpose=is_transpose)
    return result


def negative(column: Any) -> Any:
    """-column, by the Vector engine."""
    result = in_sbuf(column.shape, column.dtype)
    nisa.tensor_scalar(dst=result, data=column, op0=nl.multiply, operand0=-1.0)
    return result


def reduced(op: Any, tile: Any, dtype: Any = nl.float32, negate: bool = False) -> Any:
    """The fold of each row as a column."""
    column = in_sbuf((tile.shape[0], 1), dtype)
    nisa.tensor_reduce(dst=column, op=op, data=tile, axis=1, negate=negate)
    return column
