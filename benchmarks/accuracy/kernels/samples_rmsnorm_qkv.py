"""RMSNorm followed by the QKV projection, in tiles at addresses that the kernel fixes (nki-samples)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.samples_steps import BANK, PARTITIONS

FIRST_BYTE = 260
"""Where the tiles of rows begin: behind the identity and the column of zeros."""

RESULT_BANK = 7 * 2048
"""First byte of the PSUM bank of the result."""


def at(shape: tuple[int, ...], dtype: Any, byte: int) -> Any:
    """A tile in SBUF at a byte of every partition."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf, address=(0, byte))


@nki.jit
def rms_norm_qkv(hidden: Any, weights: Any, identity: Any, epsilon: float) -> Any:
    """ns-rq-*: all weights first, then 128 rows at a time, two tiles of rows in turn, everything else in one place.

    Dimensions: hidden [1, S, D], weights [D, N], identity [128, 128] -> [S, N]; D in 512s, N up to 512.

    Pseudocode, for each 128 rows:
        load them; scale = rsqrt(sum(rows^2) / D + epsilon)
        for each 512 columns:
            rows *= scale; transpose four blocks into bank 0 of PSUM, always the same; copy them back over the rows
        accumulate D / 128 products in bank 7, copy them out, store them
    Where N < 512 the products are 512 wide all the same; the columns without weights are set to zero here, while the
    original multiplies what happens to be there.
    """
    _, length, depth = hidden.shape
    out = nl.ndarray((length, weights.shape[1]), dtype=hidden.dtype, buffer=nl.shared_hbm)
    eye = at((PARTITIONS, PARTITIONS), weights.dtype, 0)
    nisa.dma_copy(dst=eye, src=identity)
    bias = at((PARTITIONS, 1), nl.float32, 2 * PARTITIONS)
    nisa.memset(dst=bias, value=0.0)
    rows_end = FIRST_BYTE + 4 * depth
    normal = at((PARTITIONS, depth), weights.dtype, rows_end + 4 * (depth + 1))
    result = at((PARTITIONS, BANK), weights.dtype, rows_end + 4 * (depth + 1) + 2 * depth)
    loaded = load_weights(weights, rows_end + 4 * (depth + 1) + 2 * (depth + BANK))
    for tile in range(length // PARTITIONS):
        rows = at((PARTITIONS, depth), hidden.dtype, FIRST_BYTE + tile % 2 * 2 * depth)
        window = slice(tile * PARTITIONS, (tile + 1) * PARTITIONS)
        nisa.dma_copy(dst=rows, src=hidden[0, window, :])
        scale = inverse_root_mean_square(rows, bias, epsilon, rows_end)
        for start in range(0, depth, BANK):
            columns = slice(start, start + BANK)
            nisa.tensor_scalar(dst=normal[:, columns], data=rows[:, columns], op0=nl.multiply, operand0=scale)
            transpose_blocks(normal[:, columns], eye)
        products = nl.ndarray((PARTITIONS, BANK), dtype=nl.float32, buffer=nl.psum, address=(0, RESULT_BANK))
        for k, moving in enumerate(loaded):
            block = normal[:, k * PARTITIONS : (k + 1) * PARTITIONS]
            nisa.nc_matmul(dst=products, stationary=block, moving=moving)
        nisa.tensor_copy(dst=result, src=products)
        nisa.dma_copy(dst=out[window, :], src=result[:, : weights.shape[1]])
    return out


def load_weights(weights: Any, byte: int) -> list[Any]:
    """Tiles [128, 512] of all weights [D, N], one behind the other."""
    width = weights.shape[1]
    tiles = []
    for k in range(weights.shape[0] // PARTITIONS):
        tile = at((PARTITIONS, BANK), weights.dtype, byte + k * 2 * BANK)
        nisa.dma_copy(dst=tile[:, :width], src=weights[k * PARTITIONS : (k + 1) * PARTITIONS, :])
        if width < BANK:
            nisa.memset(dst=tile[:, width:], value=0.0)
        tiles.append(tile)
    return tiles


def inverse_root_mean_square(rows: Any, bias: Any, epsilon: float, byte: int) -> Any:
    """rsqrt(sum(rows^2) / D + epsilon) [128, 1]: two passes of the Scalar engine and one of the Vector engine."""
    depth = rows.shape[1]
    squares = at((PARTITIONS, depth), nl.float32, byte)
    total = at((PARTITIONS, 1), nl.float32, byte + 4 * depth)
    nisa.activation_reduce(
        dst=squares, op=nl.square, data=rows, reduce_op=nl.add, reduce_res=total, bias=bias
    )
    nisa.tensor_scalar(
        dst=total, data=total, op0=nl.multiply, operand0=1.0 / depth, op1=nl.add, operand1=epsilon
    )
    nisa.activation(dst=total, op=nl.rsqrt, data=total, bias=bias)
    return total


def transpose_blocks(tile: Any, eye: Any) -> None:
    """The four blocks of tile [128, 512], each transposed in its place by way of PSUM bank 0.

    trn1 transposes into float32, later generations into the type of the tile.
    """
    dtype = nl.float32 if nisa.get_nc_version() < nisa.nc_version.gen3 else tile.dtype
    turned = nl.ndarray((PARTITIONS, BANK), dtype=dtype, buffer=nl.psum, address=(0, 0))
    for start in range(0, BANK, PARTITIONS):
        block = slice(start, start + PARTITIONS)
        nisa.nc_matmul(dst=turned[:, block], stationary=tile[:, block], moving=eye, is_transpose=True)
    nisa.tensor_copy(dst=tile, src=turned)


def case(length: int, depth: int, width: int, dtype: Any) -> Case:
    """One row of the test."""
    tensors = ((1, length, depth), (depth, width), (PARTITIONS, PARTITIONS))
    return Case(rms_norm_qkv, (*(np.zeros(shape, dtype) for shape in tensors), 1e-6), host_us)


row("ns-rq-b1s128h512d512", lambda: case(128, 512, 512, np.float16))
row("ns-rq-b1s512h1024d384", lambda: case(512, 1024, 384, ml_dtypes.bfloat16))
row("ns-rq-b1s128h1024d512", lambda: case(128, 1024, 512, ml_dtypes.bfloat16))
row("ns-rq-b1s1024h8192d512", lambda: case(1024, 8192, 512, ml_dtypes.bfloat16))
