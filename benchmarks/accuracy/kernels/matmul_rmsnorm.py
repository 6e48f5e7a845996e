"""RMSNorm before or after a float32 GEMM on trn2, fused: workspaces `rmsnorm_matmul`, `add_rmsnorm_matmul` and
`matmul_add_rmsnorm` of kda-for-trainium.

The weights are loaded once and stay in SBUF; rows come in tiles of 128, each loaded once. In the bfloat16 variants
weights and transposed rows are split into limbs and every product is three.
"""

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
    load,
    load_identity,
    multiply_limbs,
    new,
    new_limbs,
    split,
    split_blocks,
    store,
    transposed_blocks,
)

# ---- what the kernels share ----------------------------------------------------------------------------------------


def zero_column() -> Any:
    """The bias of the activations: a column of zeros."""
    column = new((TILE, 1))
    nisa.memset(dst=column, value=0.0)
    return column


def sum_of_squares(rows: Any, bias: Any) -> Any:
    """sum(rows ** 2) [128, 1]: a pass of the Scalar engine, then a reduction."""
    squares, total = new(rows.shape), new((TILE, 1))
    nisa.activation(dst=squares, op=nl.square, data=rows, bias=bias, scale=1.0)
    nisa.tensor_reduce(dst=total, op=nl.add, data=squares, axis=1)
    return total


def inverse_rms(rows: Any, bias: Any, eps: float | None) -> Any:
    """1 / sqrt(mean(rows ** 2) + eps) [128, 1]; without eps the mean is the scale of the rsqrt."""
    total, inverse = sum_of_squares(rows, bias), new((TILE, 1))
    share = 1.0 / rows.shape[1]
    if eps is None:
        nisa.activation(dst=inverse, op=nl.rsqrt, data=total, bias=bias, scale=share)
        return inverse
    mean = new((TILE, 1))
    nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=share, op1=nl.add, operand1=eps)
    nisa.activation(dst=inverse, op=nl.rsqrt, data=mean, bias=bias, scale=1.0)
    return inverse


def scaled(rows: Any, column: Any) -> Any:
    """rows * column in SBUF: each row times one number."""
    result = new(rows.shape)
    nisa.tensor_scalar(dst=result, data=rows, op0=nl.multiply, operand0=column)
    return result


def added(a: Any, b: Any) -> Any:
    """a + b in SBUF."""
    result = new(a.shape)
    nisa.tensor_tensor(dst=result, data1=a, data2=b, op=nl.add)
    return result


def spread(g: Any) -> Any:
    """g [F] in all partitions: products of a row of ones, bank by bank (what the compiler makes of `broadcast_to`)."""
    g_row, everywhere, ones = load(g.reshape((1, g.shape[0]))), new((TILE, g.shape[0])), new((1, TILE))
    nisa.memset(dst=ones, value=1.0)
    for start in range(0, g.shape[0], WIDTH):
        columns, bank = slice(start, start + WIDTH), accumulator(WIDTH)
        nisa.nc_matmul(dst=bank, stationary=ones, moving=g_row[:, columns])
        nisa.tensor_copy(dst=everywhere[:, columns], src=bank)
    return everywhere


def load_weights(w: Any, in_limbs: bool, g: Any = None) -> Any:
    """w [K, N] in SBUF as [128, K/128, N], or as two limbs of that shape, by one DMA for each 128 of K.

    g [K]: what the limbs are scaled by first, also loaded piece by piece.
    """
    depth, shape = w.shape[0], (TILE, w.shape[0] // TILE, w.shape[1])
    weights = new_limbs(shape) if in_limbs else new(shape)
    for k in range(shape[1]):
        part = slice(k * TILE, (k + 1) * TILE)
        if not in_limbs:
            nisa.dma_copy(dst=weights[:, k, :], src=w[part, :])
            continue
        tile = load(w[part, :])
        if g is not None:
            tile = scaled(tile, load(g.reshape((depth, 1))[part, :]))
        split(weights[0][:, k, :], weights[1][:, k, :], tile, through_scratch=True)
    return weights


def multiply(bank: Any, lefts: Any, weights: Any, columns: slice) -> None:
    """bank = the rows times these columns of the weights, both [128, K/128, ...] or limbs of that shape."""
    if isinstance(weights, tuple):
        for k in range(weights[0].shape[1]):
            left = [limb[:, k, :] for limb in lefts]
            multiply_limbs(bank, left, [limb[:, k, columns] for limb in weights])
    else:
        for k in range(weights.shape[1]):
            nisa.nc_matmul(dst=bank, stationary=lefts[:, k, :], moving=weights[:, k, columns])


# ---- RMSNorm, then GEMM --------------------------------------------------------------------------------------------


@nki.jit
def rmsnorm_matmul(x: Any, w: Any, in_limbs: bool) -> Any:
    """Rows kda-rmsnorm_matmul-rmsnorm_matmul_v2_postscale, _probe_loadtranspose, _v4_bf16_split (in_limbs).

    Dimensions: x [M/128, 128, K], w [K/128, 128, N] -> [M/128, 128, N]. Raw rows are transposed and multiplied; the
    norm scales each [128, 512] of the product on its way out of PSUM. The probe asks for transposed loads instead of
    transposes, but its counters (25 MB read, PE 97 %) say that the compiler loaded x once and transposed as here.
    """
    out = nl.ndarray((x.shape[0], TILE, w.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm)
    bias, identity = zero_column(), load_identity()
    weights = load_weights(w.reshape((x.shape[2], w.shape[2])), in_limbs)
    for m in nl.affine_range(x.shape[0]):
        rows = load(x[m])
        inverse = inverse_rms(rows, bias, None)
        if in_limbs:
            lefts = split_blocks(rows, identity)
        else:
            lefts = transposed_blocks(rows, identity)
        for start in nl.affine_range(0, w.shape[2], WIDTH):
            columns, bank = slice(start, start + WIDTH), accumulator(WIDTH)
            multiply(bank, lefts, weights, columns)
            nisa.dma_copy(dst=out[m, :, columns], src=scaled(bank, inverse))
    return out


@nki.jit
def add_rmsnorm_matmul(x: Any, w: Any, eps: float, z: Any, g: Any) -> Any:
    """Row kda-add_rmsnorm_matmul-add_rmsnorm_matmul_v1: rmsnorm(x + z) * g @ w in float32.

    Dimensions: x, z [M, K], w [K, N], g [K] -> [M, N]. The normalised rows are scaled by g, which is spread over the
    partitions once, transposed block by block, and multiplied 512 columns at a time.
    """
    out = nl.ndarray((x.shape[0], w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    bias, gains, identity = zero_column(), spread(g), load_identity()
    weights = load_weights(w, in_limbs=False)
    for m in nl.affine_range(0, x.shape[0], TILE):
        tile = slice(m, m + TILE)
        rows = added(load(x[tile, :]), load(z[tile, :]))
        norm, y = scaled(rows, inverse_rms(rows, bias, eps)), new(rows.shape)
        nisa.tensor_tensor(dst=y, data1=norm, data2=gains, op=nl.multiply)
        lefts = transposed_blocks(y, identity)
        for start in nl.affine_range(0, w.shape[1], WIDTH):
            columns, bank = slice(start, start + WIDTH), accumulator(WIDTH)
            multiply(bank, lefts, weights, columns)
            store(out[tile, columns], bank)
    return out


@nki.jit
def add_rmsnorm_matmul_in_limbs(x: Any, w: Any, eps: float, z: Any, g: Any, from_psum: bool) -> Any:
    """Rows kda-add_rmsnorm_matmul-add_rmsnorm_matmul_v3_bf16_split and, from_psum, _v4_psum_split.

    Dimensions as `add_rmsnorm_matmul`. g scales the weights before they are split, the norm the product on its way
    out of PSUM; the limbs of the rows come from a float32 copy of their transpose, or from PSUM itself.
    """
    out = nl.ndarray((x.shape[0], w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    bias, identity = zero_column(), load_identity()
    weights = load_weights(w, in_limbs=True, g=g)
    for m in nl.affine_range(0, x.shape[0], TILE):
        tile = slice(m, m + TILE)
        rows = added(load(x[tile, :]), load(z[tile, :]))
        inverse = inverse_rms(rows, bias, eps)
        lefts = split_blocks(rows, identity, from_psum)
        for start in nl.affine_range(0, w.shape[1], WIDTH):
            columns, bank = slice(start, start + WIDTH), accumulator(WIDTH)
            multiply(bank, lefts, weights, columns)
            nisa.dma_copy(dst=out[tile, columns], src=scaled(bank, inverse))
    return out


# ---- GEMM, then RMSNorm --------------------------------------------------------------------------------------------


@nki.jit
def matmul_add_rmsnorm(x: Any, w: Any, eps: float, z: Any, g: Any, variant: str) -> Any:
    """Rows kda-matmul_add_rmsnorm-matmul_add_rmsnorm_v1 ("float32"), _v2_psum_split ("psum") and
    _v4_stationary_reorder_2bank ("pairs"): rmsnorm(x @ w + z) * g.

    Dimensions: x [M, K], w [K, N], z [M, N], g [N] -> [M, N]. A whole row of the product is assembled in SBUF, z being
    added on its way out of PSUM, then normalised and stored by one DMA. "psum": in limbs taken from PSUM, bank by bank.
    "pairs": in limbs of a float32 copy, two banks at a time, so that a stationary tile serves both.
    """
    width = w.shape[1]
    out = nl.ndarray((x.shape[0], width), dtype=x.dtype, buffer=nl.shared_hbm)
    bias, gains, identity = zero_column(), spread(g), load_identity()
    weights = load_weights(w, in_limbs=variant != "float32")
    banks_at_once = 2 if variant == "pairs" else 1
    for m in nl.affine_range(0, x.shape[0], TILE):
        rows, y = load(x[m : m + TILE, :]), new((TILE, width))
        if variant == "float32":
            lefts = transposed_blocks(rows, identity)
        else:
            lefts = split_blocks(rows, identity, from_psum=variant == "psum")
        for first in nl.affine_range(0, width, banks_at_once * WIDTH):
            starts = range(first, first + banks_at_once * WIDTH, WIDTH)
            banks = multiply_banks(lefts, weights, [slice(start, start + WIDTH) for start in starts])
            for start, bank in zip(starts, banks):
                residual = load(z[m : m + TILE, start : start + WIDTH])
                nisa.tensor_tensor(dst=y[:, start : start + WIDTH], data1=bank, data2=residual, op=nl.add)
        result = scaled(y, inverse_rms(y, bias, eps))
        nisa.tensor_tensor(dst=result, data1=result, data2=gains, op=nl.multiply)
        nisa.dma_copy(dst=out[m : m + TILE, :], src=result)
    return out


def multiply_banks(lefts: Any, weights: Any, columns: list[slice]) -> list[Any]:
    """The product for several ranges of columns, a bank each. Two at a time share a stationary tile: high limbs of the
    rows with all banks, then low limbs."""
    banks = [accumulator(WIDTH) for _ in columns]
    if len(banks) == 1:
        multiply(banks[0], lefts, weights, columns[0])
        return banks
    for k in nl.affine_range(weights[0].shape[1]):
        high, low = lefts[0][:, k, :], lefts[1][:, k, :]
        for bank, part in zip(banks, columns):
            nisa.nc_matmul(dst=bank, stationary=high, moving=weights[0][:, k, part])
            nisa.nc_matmul(dst=bank, stationary=high, moving=weights[1][:, k, part])
        for bank, part in zip(banks, columns):
            nisa.nc_matmul(dst=bank, stationary=low, moving=weights[0][:, k, part])
    return banks


EPS = 1e-6


def _norm_first(in_limbs: bool) -> Case:
    return Case(rmsnorm_matmul, (blank(32, 128, 1024), blank(8, 128, 2048), in_limbs), host_us)


def _add_first(kernel: Any, *variant: Any) -> Case:
    x, z = blank(4096, 1024), blank(4096, 1024)
    return Case(kernel, (x, blank(1024, 2048), EPS, z, blank(1024), *variant), host_us)


def _norm_last(variant: str) -> Case:
    x, z = blank(4096, 2048), blank(4096, 2048)
    return Case(matmul_add_rmsnorm, (x, blank(2048, 2048), EPS, z, blank(2048), variant), host_us)


row("kda-rmsnorm_matmul-rmsnorm_matmul_v2_postscale", lambda: _norm_first(False))
row("kda-rmsnorm_matmul-rmsnorm_matmul_probe_loadtranspose", lambda: _norm_first(False))
row("kda-rmsnorm_matmul-rmsnorm_matmul_v4_bf16_split", lambda: _norm_first(True))
row("kda-add_rmsnorm_matmul-add_rmsnorm_matmul_v1", lambda: _add_first(add_rmsnorm_matmul))
row(
    "kda-add_rmsnorm_matmul-add_rmsnorm_matmul_v3_bf16_split",
    lambda: _add_first(add_rmsnorm_matmul_in_limbs, False),
)
row(
    "kda-add_rmsnorm_matmul-add_rmsnorm_matmul_v4_psum_split",
    lambda: _add_first(add_rmsnorm_matmul_in_limbs, True),
)
row("kda-matmul_add_rmsnorm-matmul_add_rmsnorm_v1", lambda: _norm_last("float32"))
row("kda-matmul_add_rmsnorm-matmul_add_rmsnorm_v2_psum_split", lambda: _norm_last("psum"))
row("kda-matmul_add_rmsnorm-matmul_add_rmsnorm_v4_stationary_reorder_2bank", lambda: _norm_last("pairs"))
