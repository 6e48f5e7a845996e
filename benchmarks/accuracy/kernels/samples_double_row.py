"""A matrix product with fp8 at double rate, whose left side is quantised on the way (nki-samples)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.samples_steps import BANK, PARTITIONS, bank, load, new, pair, zeros

LARGEST_FP8 = 240.0


@nki.jit
def double_row_matmul(lhs: Any, rhs: Any, rhs_scale: Any, tiles_m: int, tiles_n: int, tiles_k: int) -> Any:
    """ns-drow: blocks of 128 tiles_m x 512 tiles_n results, summed over blocks of 128 tiles_k.

    Dimensions: lhs [M, K], rhs fp8 [K / 2, 2 N], rhs_scale [128, N] -> [M, N]. In rhs, the two tiles that one product
    contracts lie side by side.

    Pseudocode, for each block of rows:
        result = 0
        for each block of K:
            quantise and transpose the block of lhs                    # scales [128, 1], one a tile of rows
            for each block of columns: load rhs; partial += products   # both in bfloat16 in SBUF
            result += partial * scale of the rows
        load rhs_scale; store result * rhs_scale
    """
    (height, depth), width = lhs.shape, rhs.shape[1] // 2
    out = nl.ndarray((height, width), dtype=lhs.dtype, buffer=nl.shared_hbm)
    block_k = PARTITIONS * tiles_k
    for first in range(0, height, PARTITIONS * tiles_m):
        tiles = [
            slice(row, row + PARTITIONS) for row in range(first, first + PARTITIONS * tiles_m, PARTITIONS)
        ]
        results = zeros((PARTITIONS, tiles_m, width), lhs.dtype)
        for k in range(0, depth, block_k):
            left = [quantised_and_transposed(lhs[tile, k : k + block_k]) for tile in tiles]
            partial = zeros((PARTITIONS, tiles_m, width), lhs.dtype)
            for n in range(0, width, BANK * tiles_n):
                block = rhs[k // 2 : (k + block_k) // 2, 2 * n : 2 * (n + BANK * tiles_n)]
                add_products(partial[:, :, n : n + BANK * tiles_n], left, load_pairs(block))
            for m in range(tiles_m):
                scaled = pair(partial[:, m, :], nl.multiply, left[m][1].broadcast(1, width))
                nisa.tensor_tensor(dst=results[:, m, :], data1=results[:, m, :], data2=scaled, op=nl.add)
        scales = load(rhs_scale)
        for m, tile in enumerate(tiles):
            nisa.dma_copy(dst=out[tile, :], src=pair(results[:, m, :], nl.multiply, scales))
    return out


def quantised_and_transposed(window: Any) -> tuple[Any, Any]:
    """lhs^T as fp8 [128, k / 128, 128], and the scales [128, 1] of its rows; window [128, k] in HBM.

    Pseudocode: load; absolute values; largest of a row; / 240; divide the row by it; transpose the blocks in place.
    """
    tile = load(window)
    sizes = new(tile.shape, tile.dtype)
    scale, inverse = (new((PARTITIONS, 1), tile.dtype) for _ in range(2))
    nisa.activation(dst=sizes, op=nl.abs, data=tile)
    nisa.tensor_reduce(dst=scale, op=nl.maximum, data=sizes, axis=1)
    nisa.tensor_scalar(dst=scale, data=scale, op0=nl.multiply, operand0=1 / LARGEST_FP8)
    nisa.reciprocal(dst=inverse, data=scale)
    narrow = new((PARTITIONS, tile.shape[1] // PARTITIONS, PARTITIONS), nl.float8_e4m3)
    flat = narrow.reshape(tile.shape)
    nisa.tensor_scalar(dst=flat, data=tile, op0=nl.multiply, operand0=inverse)
    for block in range(narrow.shape[1]):
        turned = bank(PARTITIONS, PARTITIONS, narrow.dtype)
        nisa.nc_transpose(dst=turned, data=narrow[:, block, :])
        nisa.tensor_copy(dst=narrow[:, block, :], src=turned)
    return narrow, scale


def load_pairs(window: Any) -> list[Any]:
    """Tiles [128, 2 columns] of a block of rhs, one DMA each."""
    return [load(window[k : k + PARTITIONS, :]) for k in range(0, window.shape[0], PARTITIONS)]


def add_products(partial: Any, left: list[tuple[Any, Any]], right: list[Any]) -> None:
    """partial[128, m, n] += left right, a bank at a time; each product contracts two blocks of K."""
    for m in range(partial.shape[1]):
        for n in range(0, partial.shape[2], BANK):
            total = bank(PARTITIONS, BANK)
            for k, tile in enumerate(right):
                nisa.nc_matmul(
                    dst=total,
                    stationary=left[m][0][:, 2 * k : 2 * k + 2, :],
                    moving=tile[:, 2 * n : 2 * (n + BANK)].reshape((PARTITIONS, 2, BANK)),
                    perf_mode=nisa.matmul_perf_mode.double_row,
                )
            place = partial[:, m, n : n + BANK]
            nisa.tensor_tensor(dst=place, data1=place, data2=total, op=nl.add)


def case() -> Case:
    """The performance test."""
    lhs, scales = (
        np.zeros((512, 16_384), ml_dtypes.bfloat16),
        np.zeros((PARTITIONS, 1024), ml_dtypes.bfloat16),
    )
    return Case(
        double_row_matmul, (lhs, np.zeros((8192, 2048), ml_dtypes.float8_e4m3), scales, 2, 2, 16), host_us
    )


row("ns-drow", case)
