"""The kernels of the table, as an author would write them."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def matmul(lhs_t: Any, rhs: Any) -> Any:
    """lhs_t[K, M].T @ rhs[K, N]: both operands are loaded once, the products accumulate over K in PSUM."""
    depth, rows = lhs_t.shape
    columns = rhs.shape[1]
    tile_k, tile_m, tile_n = (
        nl.tile_size.pmax,
        nl.tile_size.gemm_stationary_fmax,
        nl.tile_size.gemm_moving_fmax,
    )
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    lhs_tiles, rhs_tiles = [], []
    for k in range(depth // tile_k):
        lhs_tile = nl.ndarray((tile_k, rows), dtype=lhs_t.dtype, buffer=nl.sbuf)
        rhs_tile = nl.ndarray((tile_k, columns), dtype=rhs.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=lhs_tile, src=lhs_t[k * tile_k : (k + 1) * tile_k, :])
        nisa.dma_copy(dst=rhs_tile, src=rhs[k * tile_k : (k + 1) * tile_k, :])
        lhs_tiles.append(lhs_tile)
        rhs_tiles.append(rhs_tile)
    for m in range(rows // tile_m):
        out_tile = nl.ndarray((tile_m, columns), dtype=lhs_t.dtype, buffer=nl.sbuf)
        for n in range(columns // tile_n):
            product = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for lhs_tile, rhs_tile in zip(lhs_tiles, rhs_tiles):
                nisa.nc_matmul(
                    dst=product,
                    stationary=lhs_tile[:, m * tile_m : (m + 1) * tile_m],
                    moving=rhs_tile[:, n * tile_n : (n + 1) * tile_n],
                )
            nisa.tensor_copy(dst=out_tile[:, n * tile_n : (n + 1) * tile_n], src=product)
        nisa.dma_copy(dst=out[m * tile_m : (m + 1) * tile_m, :], src=out_tile)
    return out


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
