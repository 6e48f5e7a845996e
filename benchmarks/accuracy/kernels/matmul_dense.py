"""Dense float32 GEMM on trn2, plain or with a low-rank residual: `matmul` and `lora` of kda-for-trainium."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.matmul_steps import (
    TILE,
    WIDTH,
    accumulator,
    blank,
    copied,
    limbs_of,
    load,
    load_identity,
    multiply_limbs,
    new,
    new_limbs,
    split,
    store,
    transposed,
)


@nki.jit
def matmul(lhs: Any, rhs: Any, block: int) -> Any:
    """Rows kda-matmul-matmul_v1 (block=1) and _v2_b4 (block=4): lhs @ rhs in float32, `block` row tiles at a time.

    Dimensions: lhs [M/128, 128, K/128, 128], rhs [K/128, 128, N] -> [M/128, 128, N]. The left tiles of a block are
    loaded and transposed once; then, for each 512 columns, every right tile is loaded once and multiplied with all
    of them, into one PSUM bank a row tile.
    """
    row_tiles, _, depth, _ = lhs.shape
    out = nl.ndarray((row_tiles, TILE, rhs.shape[2]), dtype=lhs.dtype, buffer=nl.shared_hbm)
    identity = load_identity()
    for first in nl.affine_range(0, row_tiles, block):
        lefts = new((TILE, block, depth, TILE))
        for m in nl.affine_range(block):
            for k in nl.affine_range(depth):
                turned = transposed(load(lhs[first + m, :, k, :]), identity)
                nisa.tensor_copy(dst=lefts[:, m, k, :], src=turned)
        for start in nl.affine_range(0, rhs.shape[2], WIDTH):
            columns = slice(start, start + WIDTH)
            banks = [accumulator(WIDTH) for _ in range(block)]
            for k in nl.affine_range(depth):
                right = load(rhs[k, :, columns])
                for m in nl.affine_range(block):
                    nisa.nc_matmul(dst=banks[m], stationary=lefts[:, m, k, :], moving=right)
            for m in nl.affine_range(block):
                store(out[first + m, :, columns], banks[m])
    return out


@nki.jit
def lora(x: Any, w: Any, a: Any, b: Any) -> Any:
    """Row kda-lora-lora_v1: x @ w + (x @ a) @ b in float32, one row tile and 128 columns at a time.

    Dimensions: x [Mo, Mi, 128, K/128, 128], w [K/128, 128, N], a [K/128, 128, 128], b [128, N] -> [Mo, Mi, 128, N/128,
    128]. `a` stays in SBUF. Of each row tile the transposes are made once, then (x @ a)^T; for each column tile the
    products with w and the one with b accumulate in one PSUM bank.
    """
    outer, inner, _, depth, _ = x.shape
    tiles = w.shape[2] // TILE
    out = nl.ndarray((outer, inner, TILE, tiles, TILE), dtype=x.dtype, buffer=nl.shared_hbm)
    identity, downs = load_identity(), load_blocks(a)
    for i in nl.affine_range(outer):
        for j in nl.affine_range(inner):
            lefts, product = new((TILE, depth, TILE)), accumulator(TILE)
            for k in nl.affine_range(depth):
                turned = transposed(load(x[i, j, :, k, :]), identity)
                nisa.tensor_copy(dst=lefts[:, k, :], src=turned)
            for k in nl.affine_range(depth):
                nisa.nc_matmul(dst=product, stationary=downs[:, k, :], moving=lefts[:, k, :])
            low = copied(product)
            for n in nl.affine_range(tiles):
                columns, bank = slice(n * TILE, (n + 1) * TILE), accumulator(TILE)
                for k in nl.affine_range(depth):
                    right = load(w[k, :, columns])
                    nisa.nc_matmul(dst=bank, stationary=lefts[:, k, :], moving=right)
                nisa.nc_matmul(dst=bank, stationary=low, moving=load(b[:, columns]))
                store(out[i, j, :, n, :], bank)
    return out


@nki.jit
def lora_in_limbs(x: Any, w: Any, a: Any, b: Any) -> Any:
    """Row kda-lora-lora_v3_bf16_split: the same, x @ w as three bfloat16 products, four row tiles at a time.

    Dimensions as `lora`. A block is the row tiles of one outer index. Before the columns, each transposed tile feeds
    (x @ a)^T in float32 and is split into limbs. Of each 512 columns, a tile of w is loaded and split once for the
    whole block; the product with b stays float32. A bank is stored in four DMAs of 128 columns.
    """
    outer, inner, _, depth, _ = x.shape
    out = nl.ndarray((outer, inner, TILE, w.shape[2] // TILE, TILE), dtype=x.dtype, buffer=nl.shared_hbm)
    identity, downs = load_identity(), load_blocks(a)
    for i in nl.affine_range(outer):
        high, low = new_limbs((TILE, inner, depth, TILE))
        lows = new((TILE, inner, TILE))
        for j in nl.affine_range(inner):
            product = accumulator(TILE)
            for k in nl.affine_range(depth):
                turned = copied(transposed(load(x[i, j, :, k, :]), identity))
                nisa.nc_matmul(dst=product, stationary=downs[:, k, :], moving=turned)
                split(high[:, j, k, :], low[:, j, k, :], turned, through_scratch=False)
            nisa.tensor_copy(dst=lows[:, j, :], src=product)
        for start in nl.affine_range(0, w.shape[2], WIDTH):
            columns = slice(start, start + WIDTH)
            banks = [accumulator(WIDTH) for _ in range(inner)]
            for k in nl.affine_range(depth):
                right = limbs_of(load(w[k, :, columns]), through_scratch=False)
                for j in nl.affine_range(inner):
                    multiply_limbs(banks[j], (high[:, j, k, :], low[:, j, k, :]), right)
            up = load(b[:, columns])
            for j in nl.affine_range(inner):
                nisa.nc_matmul(dst=banks[j], stationary=lows[:, j, :], moving=up)
                store_in_tiles(out[i, j, :, start // TILE : (start + WIDTH) // TILE, :], banks[j])
    return out


def load_blocks(a: Any) -> Any:
    """a [n, 128, F] as a tile [128, n, F], by n DMAs."""
    tile = new((TILE, a.shape[0], a.shape[2]))
    for k in range(a.shape[0]):
        nisa.dma_copy(dst=tile[:, k, :], src=a[k])
    return tile


def store_in_tiles(window: Any, bank: Any) -> None:
    """window[128, n, 128] = bank[128, 128 n], copied out at once and written by n DMAs."""
    tile = copied(bank)
    for n in range(window.shape[1]):
        nisa.dma_copy(dst=window[:, n, :], src=tile[:, n * TILE : (n + 1) * TILE])


def _matmul(block: int) -> Case:
    return Case(matmul, (blank(32, 128, 40, 128), blank(40, 128, 12288), block), host_us)


def _lora(kernel: Any) -> Case:
    x, w = blank(8, 4, 128, 40, 128), blank(40, 128, 12288)
    return Case(kernel, (x, w, blank(40, 128, 128), blank(128, 12288)), host_us)


row("kda-matmul-matmul_v1", lambda: _matmul(1))
row("kda-matmul-matmul_v2_b4", lambda: _matmul(4))
row("kda-lora-lora_v1", lambda: _lora(lora))
row("kda-lora-lora_v3_bf16_split", lambda: _lora(lora_in_limbs))
