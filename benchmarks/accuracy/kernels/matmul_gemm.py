"""Tiled bfloat16 GEMM on trn1: the variants of the public optimisation trace `2_gemm_trace.py` of ucb-bar/autocomp."""

from __future__ import annotations

from typing import Any

import ml_dtypes

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.matmul_steps import TILE, WIDTH, accumulator, blank, load, new


@nki.jit
def gemm(lhs_t: Any, rhs: Any, group_m: int, group_n: int, load_m: int, load_n: int, vector: bool) -> Any:
    """Rows ac-gemm-1, -3, -5: lhs_t[K, M].T @ rhs[K, N], a group of PSUM banks accumulates over K at a time.

    The output is walked in groups of `group_m` x `group_n` tiles of [128, 512]. For every 128 of K, the group's
    tiles of both operands are loaded, `load_m` tiles of lhs_t and `load_n` of rhs by one DMA, and multiplied, the
    stationary tile outermost. Then each bank is copied out (by the Vector engine if `vector`, else the compiler's
    choice) and stored. In variant 1 a right tile is loaded right before its product; later all come first.
    """
    depth, rows = lhs_t.shape
    columns = rhs.shape[1]
    result = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    engine = nisa.engine.vector if vector else nisa.engine.unknown
    for top in nl.affine_range(0, rows, group_m * TILE):
        for left in nl.affine_range(0, columns, group_n * WIDTH):
            banks = [[accumulator(WIDTH) for _ in range(group_n)] for _ in range(group_m)]
            for k in nl.affine_range(0, depth, TILE):
                deep = slice(k, k + TILE)
                rights: list[Any] = []
                if group_m > 1:
                    rights = load_tiles(rhs[deep, left : left + group_n * WIDTH], load_n, WIDTH)
                lefts: list[Any] = []
                for m in range(group_m):
                    if m % load_m == 0:
                        start = top + m * TILE
                        lefts += load_tiles(lhs_t[deep, start : start + load_m * TILE], load_m, TILE)
                    for n in range(group_n):
                        if len(rights) == n:
                            start = left + n * WIDTH
                            rights += load_tiles(rhs[deep, start : start + WIDTH], 1, WIDTH)
                        nisa.nc_matmul(dst=banks[m][n], stationary=lefts[m], moving=rights[n])
            for m in range(group_m):
                for n in range(group_n):
                    tile = new((TILE, WIDTH), result.dtype)
                    nisa.tensor_copy(dst=tile, src=banks[m][n], engine=engine)
                    row_of, column = top + m * TILE, left + n * WIDTH
                    nisa.dma_copy(dst=result[row_of : row_of + TILE, column : column + WIDTH], src=tile)
    return result


def load_tiles(window: Any, at_once: int, width: int) -> list[Any]:
    """The tiles of `width` columns of a window of HBM, `at_once` of them by one DMA."""
    tiles = []
    for start in range(0, window.shape[1], at_once * width):
        wide = load(window[:, start : start + at_once * width])
        tiles += [wide[:, i * width : (i + 1) * width] for i in range(at_once)]
    return tiles


def _gemm(*variant: Any) -> Case:
    lhs_t = blank(8192, 4096, dtype=ml_dtypes.bfloat16)
    rhs = blank(8192, 8192, dtype=ml_dtypes.bfloat16)
    return Case(gemm, (lhs_t, rhs, *variant), host_us)


row("ac-gemm-1", lambda: _gemm(1, 2, 1, 1, False))
row("ac-gemm-3", lambda: _gemm(4, 2, 1, 1, False))
row("ac-gemm-5", lambda: _gemm(4, 2, 4, 2, True))
