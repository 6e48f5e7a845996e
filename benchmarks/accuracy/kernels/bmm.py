"""Batched float32 products of depth 64, alone and under a softmax over rows (workspaces bmm, bmm_softmax of
kda-for-trainium).

Dimensions: lhs [B, M, 64], rhs [B, 64, N] -> [B, M, N]; the published rows have B = 16, M = N = 4096.

The variants differ in order only: how many tiles of 128 rows of lhs are transposed before the first of them is
multiplied, when PSUM banks are copied out, and which engine does so. Where the original leaves the engine of a copy to
its compiler, `tensor_copy` without an engine stands here, which is the Vector engine's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.streams import fetch

ROWS = 128
"""Rows of a tile of lhs."""

BANK = 512
"""Columns of a product: a PSUM bank."""

WIDE = 1024
"""Columns of a store of the two-phase products."""


# ---- what all variants share ------------------------------------------------------------------------------------


def sbuf(rows: int, columns: int) -> Any:
    """A new float32 tile in SBUF."""
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)


def load_identity() -> Any:
    """The moving operand of all transposes. Dimensions: [128, 128]."""
    return fetch(nl.shared_constant(np.identity(ROWS, np.float32)))


def transpose_into(dst: Any, source: Any, identity: Any) -> None:
    """dst[64, 128] = the transposed rows of lhs: load, product with the identity, copy out of PSUM."""
    tile = fetch(source)
    turned = nl.ndarray(dst.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=turned, stationary=tile, moving=identity, is_transpose=True, is_moving_onezero=True)
    nisa.tensor_copy(dst=dst, src=turned)


def transpose_block(rows: Any, identity: Any) -> Any:
    """All tiles of some rows of lhs transposed, side by side in SBUF. Dimensions: [R, 64] -> [64, R]."""
    packed = sbuf(rows.shape[1], rows.shape[0])
    for start in range(0, rows.shape[0], ROWS):
        tile = slice(start, start + ROWS)
        transpose_into(packed[:, tile], rows[tile], identity)
    return packed


def multiply(stationary: Any, moving: Any, column: int) -> Any:
    """A bank of PSUM with 512 columns of the product, from `column` on."""
    product = nl.ndarray((stationary.shape[1], BANK), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=stationary, moving=moving[:, column : column + BANK])
    return product


def new_output(lhs: Any, rhs: Any) -> Any:
    """The result in HBM."""
    return nl.ndarray((*lhs.shape[:2], rhs.shape[2]), dtype=lhs.dtype, buffer=nl.shared_hbm)


# ---- products ---------------------------------------------------------------------------------------------------


@nki.jit
def bmm_by_tiles(lhs: Any, rhs: Any, banks: int) -> Any:
    """kda-bmm-bmm_d1_stage_a_g2 and _stage_b_g4: each tile of lhs is transposed right before it is multiplied.

    `banks` products are issued before the first of them is copied and stored, 512 columns at a time. Stage a only
    reserves two banks and issues one product after the other, hence banks=1.
    """
    out, identity = new_output(lhs, rhs), load_identity()
    for batch in range(lhs.shape[0]):
        moving = fetch(rhs[batch])
        for start in range(0, lhs.shape[1], ROWS):
            tile = slice(start, start + ROWS)
            stationary = sbuf(lhs.shape[2], ROWS)
            transpose_into(stationary, lhs[batch, tile], identity)
            for first in range(0, rhs.shape[2], banks * BANK):
                columns = range(first, first + banks * BANK, BANK)
                products = [multiply(stationary, moving, column) for column in columns]
                for column, product in zip(columns, products):
                    result = sbuf(ROWS, BANK)
                    nisa.tensor_copy(dst=result, src=product)
                    nisa.dma_copy(dst=out[batch, tile, column : column + BANK], src=result)
    return out


@nki.jit
def bmm_two_phases(lhs: Any, rhs: Any, batches: int, rows: int) -> Any:
    """kda-bmm-bmm_d1_twophase (1 batch, 1024 rows), bmm_v2 (1, 4096), bmm_d1_bblk2 (2, 4096).

    First all tiles of a block are transposed, `rows` rows of lhs in each of `batches` batches, then all of them are
    multiplied with nothing between. Two banks are copied into a tile of 1024 columns and stored at once.
    """
    out, identity = new_output(lhs, rhs), load_identity()
    for first in range(0, lhs.shape[0], batches):
        block = range(first, first + batches)
        moving = [fetch(rhs[batch]) for batch in block]
        for start in range(0, lhs.shape[1], rows):
            window = slice(start, start + rows)
            packed = [transpose_block(lhs[batch, window], identity) for batch in block]
            for batch, right, left in zip(block, moving, packed):
                multiply_block(out[batch, window], left, right)
    return out


def multiply_block(out: Any, packed: Any, moving: Any) -> None:
    """out[R, N] = packed[64, R]^T moving[64, N]."""
    for start in range(0, packed.shape[1], ROWS):
        tile = slice(start, start + ROWS)
        for column in range(0, moving.shape[1], WIDE):
            products = [multiply(packed[:, tile], moving, column + half) for half in range(0, WIDE, BANK)]
            result = sbuf(ROWS, WIDE)
            for half, product in enumerate(products):
                nisa.tensor_copy(dst=result[:, half * BANK : (half + 1) * BANK], src=product)
            nisa.dma_copy(dst=out[tile, column : column + WIDE], src=result)


# ---- products under a softmax -----------------------------------------------------------------------------------


@nki.jit
def bmm_softmax(lhs: Any, rhs: Any, rows: int, variant: str) -> Any:
    """kda-bmm_softmax-*: as `bmm_two_phases`, one batch at a time, but whole rows of scores become weights.

    Variant and rows of a block: v1 (128, a tile transposed right before it is multiplied, and the maximum negated by
    an instruction of its own), v3b (1024), the others 2048 - scores copied by the Vector engine (`copy_vector`),
    weights divided on the Scalar engine (`norm_scalar`), scores left in PSUM (`copyelim`).

    Pseudocode, for each tile of 128 rows:
        scores = lhs^T rhs                                # 8 banks, copied to SBUF one by one
        weights = exp(scores - max(scores))               # a pass of the Vector, one of the Scalar engine
        out = weights / sum(weights)                      # two of the Vector engine, one store of 4096 columns
    """
    out, identity = new_output(lhs, rhs), load_identity()
    for batch in range(lhs.shape[0]):
        moving = fetch(rhs[batch])
        for block in range(0, lhs.shape[1], rows):
            packed = transpose_block(lhs[batch, block : block + rows], identity)
            for start in range(0, rows, ROWS):
                stationary = packed[:, start : start + ROWS]
                scores = multiply_row(stationary, moving, variant)
                result = weigh(scores, variant)
                first = block + start
                nisa.dma_copy(dst=out[batch, first : first + ROWS], src=result)
    return out


def multiply_row(stationary: Any, moving: Any, variant: str) -> Any:
    """The scores of a tile against all keys. Dimensions: [64, 128], [64, N] -> [128, N] in SBUF, or in PSUM."""
    shape = (stationary.shape[1], moving.shape[1])
    scores = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum if variant == "copyelim" else nl.sbuf)
    for column in range(0, moving.shape[1], BANK):
        columns = slice(column, column + BANK)
        if variant == "copyelim":
            nisa.nc_matmul(dst=scores[:, columns], stationary=stationary, moving=moving[:, columns])
            continue
        product = multiply(stationary, moving, column)
        engine = nisa.engine.vector if variant == "copy_vector" else nisa.engine.unknown
        nisa.tensor_copy(dst=scores[:, columns], src=product, engine=engine)
    return scores


def weigh(scores: Any, variant: str) -> Any:
    """The softmax of every row, in a new tile in SBUF. Dimensions: [128, N] -> [128, N]."""
    low, total, inverse = (sbuf(ROWS, 1) for _ in range(3))
    weights, result = sbuf(*scores.shape), sbuf(*scores.shape)
    if variant == "v1":
        high = sbuf(ROWS, 1)
        nisa.tensor_reduce(dst=high, op=nl.maximum, data=scores, axis=1)
        nisa.tensor_scalar(dst=low, data=high, op0=nl.multiply, operand0=-1.0)
    else:
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=scores, axis=1, negate=True)
    nisa.activation(dst=weights, op=nl.exp, data=scores, bias=low, scale=1.0)
    nisa.tensor_reduce(dst=total, op=nl.add, data=weights, axis=1)
    nisa.reciprocal(dst=inverse, data=total)
    if variant == "norm_scalar":
        nisa.activation(dst=result, op=nl.copy, data=weights, scale=inverse)
    else:
        nisa.tensor_scalar(dst=result, data=weights, op0=nl.multiply, operand0=inverse)
    return result


# ---- the rows -----------------------------------------------------------------------------------------------------


def _case(kernel: Any, *options: Any) -> Case:
    tensors = np.zeros((16, 4096, 64), np.float32), np.zeros((16, 64, 4096), np.float32)
    return Case(kernel, (*tensors, *options), host_us)


row("kda-bmm-bmm_d1_stage_a_g2", lambda: _case(bmm_by_tiles, 1))
row("kda-bmm-bmm_d1_stage_b_g4", lambda: _case(bmm_by_tiles, 4))
row("kda-bmm-bmm_d1_twophase", lambda: _case(bmm_two_phases, 1, 1024))
row("kda-bmm-bmm_v2", lambda: _case(bmm_two_phases, 1, 4096))
row("kda-bmm-bmm_d1_bblk2", lambda: _case(bmm_two_phases, 2, 4096))

_SOFTMAX = "kda-bmm_softmax-bmm_softmax"
row(f"{_SOFTMAX}_v1", lambda: _case(bmm_softmax, 128, "v1"))
row(f"{_SOFTMAX}_v3b_msub8", lambda: _case(bmm_softmax, 1024, "v3b"))
row(f"{_SOFTMAX}_v5_copy_vector", lambda: _case(bmm_softmax, 2048, "copy_vector"))
row(f"{_SOFTMAX}_v5_norm_scalar", lambda: _case(bmm_softmax, 2048, "norm_scalar"))
row(f"{_SOFTMAX}_copyelim_diag", lambda: _case(bmm_softmax, 2048, "copyelim"))
