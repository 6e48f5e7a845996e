"""Steps that the matmul kernels share: loads, copies out, transposes, splits into bfloat16 limbs.

The originals declare SBUF tensors with block dimensions before the partitions. What must be there at the same time is
one tile here with the blocks behind the partitions, as the migration guide of NKI 0.2 has it; the rest are tiles of
their own, made where they are used. `nl.load`, `nl.copy` and `nl.store` of a tile are one instruction each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl

TILE = 128
"""Rows of a tile, and columns of a stationary tile: the width of the array."""

WIDTH = 512
"""Columns of a moving tile, and of a float32 bank of PSUM."""


def new(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A new tile in SBUF."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def new_limbs(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Two new bfloat16 tiles in SBUF, for the high and the low half of float32 numbers."""
    return new(shape, nl.bfloat16), new(shape, nl.bfloat16)


def accumulator(width: int) -> Any:
    """A new tile of `width` columns in PSUM; the first product written to it overwrites."""
    return nl.ndarray((TILE, width), dtype=nl.float32, buffer=nl.psum)


def load(window: Any) -> Any:
    """A new tile in SBUF with a window of HBM, by one DMA."""
    tile = new(window.shape, window.dtype)
    nisa.dma_copy(dst=tile, src=window)
    return tile


def copied(tile: Any, dtype: Any = nl.float32) -> Any:
    """A new tile in SBUF with the same numbers."""
    copy = new(tile.shape, dtype)
    nisa.tensor_copy(dst=copy, src=tile)
    return copy


def store(window: Any, tile: Any) -> None:
    """window = tile, which may be in PSUM: copied out, then written by one DMA."""
    nisa.dma_copy(dst=window, src=copied(tile, window.dtype))


def load_identity() -> Any:
    """The float32 identity, from HBM."""
    return load(nl.shared_constant(np.eye(TILE, dtype=np.float32)))


def transposed(block: Any, identity: Any) -> Any:
    """The transpose of a [128, 128] block, in PSUM: one product in transpose mode."""
    turned = accumulator(TILE)
    nisa.nc_matmul(dst=turned, stationary=block, moving=identity, is_transpose=True, is_moving_onezero=True)
    return turned


def transposed_blocks(rows: Any, identity: Any) -> Any:
    """[128, F/128, 128] in SBUF: the transposes of the blocks of rows [128, F], in float32."""
    result = new((TILE, rows.shape[1] // TILE, TILE))
    for k in range(result.shape[1]):
        block = rows[:, k * TILE : (k + 1) * TILE]
        nisa.tensor_copy(dst=result[:, k, :], src=transposed(block, identity))
    return result


def split_blocks(rows: Any, identity: Any, from_psum: bool = False) -> tuple[Any, Any]:
    """Limbs [128, F/128, 128] of the same, made from float32 copies of the transposes, or from PSUM itself."""
    high, low = new_limbs((TILE, rows.shape[1] // TILE, TILE))
    for k in range(high.shape[1]):
        turned = transposed(rows[:, k * TILE : (k + 1) * TILE], identity)
        split(high[:, k, :], low[:, k, :], turned if from_psum else copied(turned), through_scratch=True)
    return high, low


def limbs_of(tile: Any, through_scratch: bool) -> tuple[Any, Any]:
    """Two new tiles with high + low = tile."""
    high, low = new_limbs(tile.shape)
    split(high, low, tile, through_scratch)
    return high, low


def split(high: Any, low: Any, tile: Any, through_scratch: bool) -> None:
    """high + low = tile, high rounded first.

    through_scratch: the rest is a float32 tile and then rounded by a copy, instead of being written as bfloat16.
    """
    nisa.tensor_copy(dst=high, src=tile)
    rest = new(tile.shape) if through_scratch else low
    nisa.tensor_tensor(dst=rest, data1=tile, data2=high, op=nl.subtract)
    if through_scratch:
        nisa.tensor_copy(dst=low, src=rest)


def multiply_limbs(product: Any, stationary: Any, moving: Any) -> None:
    """product += stationary.T moving without low x low: three bfloat16 products."""
    for left, right in ((0, 0), (0, 1), (1, 0)):
        nisa.nc_matmul(dst=product, stationary=stationary[left], moving=moving[right])


def blank(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """An argument whose values do not matter: zeros that take no memory until somebody looks."""
    return np.zeros(shape, dtype)
