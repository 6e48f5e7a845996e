"""A GEMM whose left operand comes transposed, in bfloat16 limbs: workspace `transpose_matmul` of kda-for-trainium."""

from __future__ import annotations

from typing import Any

import nki
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.matmul_steps import (
    TILE,
    accumulator,
    blank,
    load,
    multiply_limbs,
    new_limbs,
    split,
    store,
)


@nki.jit
def transpose_matmul(lhs: Any, rhs: Any, block: int, width: int, through_scratch: bool) -> Any:
    """Rows kda-transpose_matmul-tmm_v2_bf16_split (8 row tiles, 456 columns at a time, the low limb through a float32
    tile) and _v4_mblk16_nchunk512 (16, 512, directly; the last chunk is narrower).

    Dimensions: lhs [128, K/128, M], rhs [128, K/128, N] -> [M/128, 128, N]. The limbs of a block of lhs are made once;
    then, chunk by chunk, those of rhs, which all row tiles of the block are multiplied with.
    """
    depth, columns = rhs.shape[1:]
    out = nl.ndarray((lhs.shape[2] // TILE, TILE, columns), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for first in nl.affine_range(0, lhs.shape[2] // TILE, block):
        lefts = load_limbs(lhs[:, :, first * TILE : (first + block) * TILE], through_scratch)
        for start in range(0, columns, width):
            chunk = slice(start, min(start + width, columns))
            rights = load_limbs(rhs[:, :, chunk], through_scratch)
            for m in nl.affine_range(block):
                rows, bank = slice(m * TILE, (m + 1) * TILE), accumulator(chunk.stop - start)
                for k in nl.affine_range(depth):
                    left = [limb[:, k, rows] for limb in lefts]
                    multiply_limbs(bank, left, [limb[:, k, :] for limb in rights])
                store(out[first + m, :, chunk], bank)
    return out


def load_limbs(window: Any, through_scratch: bool) -> tuple[Any, Any]:
    """The two limbs of a window [128, K/128, F] of HBM, loaded and split in steps of [128, F]."""
    high, low = new_limbs(window.shape)
    for k in range(window.shape[1]):
        split(high[:, k, :], low[:, k, :], load(window[:, k, :]), through_scratch)
    return high, low


def _case(*variant: Any) -> Case:
    return Case(transpose_matmul, (blank(128, 16, 4096), blank(128, 16, 10944), *variant), host_us)


row("kda-transpose_matmul-tmm_v2_bf16_split", lambda: _case(8, 456, True))
row("kda-transpose_matmul-tmm_v4_mblk16_nchunk512", lambda: _case(16, 512, False))
