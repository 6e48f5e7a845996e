"""Steps that the kernels of nki-samples, the course exercises and the traces share: new tiles, loads, stores."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128
"""Rows of a tile."""

BANK = 512
"""float32 numbers of a PSUM bank in a partition, the widest product."""


def new(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A new tile in SBUF."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def bank(rows: int, columns: int, dtype: Any = nl.float32) -> Any:
    """A new tile in PSUM; the first product written to it overwrites."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.psum)


def zeros(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A new tile of zeros in SBUF."""
    tile = new(shape, dtype)
    nisa.memset(dst=tile, value=0.0)
    return tile


def load(window: Any) -> Any:
    """A new tile in SBUF with what a window of HBM holds, by one DMA."""
    tile = new(window.shape, window.dtype)
    nisa.dma_copy(dst=tile, src=window)
    return tile


def copied(tile: Any, dtype: Any = None) -> Any:
    """A new tile in SBUF with the same numbers."""
    copy = new(tile.shape, tile.dtype if dtype is None else dtype)
    nisa.tensor_copy(dst=copy, src=tile)
    return copy


def pair(data1: Any, op: Any, data2: Any) -> Any:
    """A new tile in SBUF with data1 op data2."""
    result = new(data1.shape, data1.dtype)
    nisa.tensor_tensor(dst=result, data1=data1, data2=data2, op=op)
    return result
