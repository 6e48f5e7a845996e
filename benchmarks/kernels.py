"""The kernels of the table, as an author would write them."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl

ROWS_AT_ONCE = 4
"""Tiles of rows that accumulate side by side in PSUM: a moving tile is used several times while it is at hand."""


@nki.jit
def matmul(lhs_t: Any, rhs: Any) -> Any:
    """lhs_t[K, M].T @ rhs[K, N]: operands are loaded once, when first needed; products accumulate over K in PSUM."""
    depth, rows = lhs_t.shape
    tile_k, tile_m, tile_n = (
        nl.tile_size.pmax,
        nl.tile_size.gemm_stationary_fmax,
        nl.tile_size.gemm_moving_fmax,
    )
    out = nl.ndarray((rows, rhs.shape[1]), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    lhs_tiles: list[Any] = []
    for column in range(0, rhs.shape[1], tile_n):
        rhs_tiles: list[Any] = []
        for first in range(0, rows, ROWS_AT_ONCE * tile_m):
            starts = range(first, first + ROWS_AT_ONCE * tile_m, tile_m)
            products = [nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum) for _ in starts]
            for k in range(depth // tile_k):
                if len(lhs_tiles) == k:
                    lhs_tiles.append(load(lhs_t[k * tile_k : (k + 1) * tile_k, :]))
                if len(rhs_tiles) == k:
                    rhs_tiles.append(load(rhs[k * tile_k : (k + 1) * tile_k, column : column + tile_n]))
                for start, product in zip(starts, products):
                    stationary = lhs_tiles[k][:, start : start + tile_m]
                    nisa.nc_matmul(dst=product, stationary=stationary, moving=rhs_tiles[k])
            for start, product in zip(starts, products):
                tile = nl.ndarray((tile_m, tile_n), dtype=lhs_t.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=tile, src=product)
                nisa.dma_copy(dst=out[start : start + tile_m, column : column + tile_n], src=tile)
    return out


def load(window: Any) -> Any:
    """A new SBUF tile with the elements of a window of HBM."""
    tile = nl.ndarray(window.shape, dtype=window.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=window)
    return tile


@nki.jit
def tiny(a: Any, count: int) -> Any:
    """`count` additions on a tile so small that only the overhead of an instruction is left."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    step = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=total, src=a)
    nisa.dma_copy(dst=step, src=a)
    for _ in range(count):
        nisa.tensor_tensor(dst=total, data1=total, data2=step, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out
