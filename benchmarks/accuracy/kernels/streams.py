"""Elementwise streams over HBM in float32: SiLU, a step of AdamW, rotary embeddings (workspaces of kda-for-trainium).

All of them move every byte once, so their time is that of the DMA engines unless an engine is slower. The variants of
a trace differ in the width of a tile, or in the engine that moves rows from one half of the partitions to the other.
The original loops are `affine_range`; the compiler prepared the descriptors (the flags of that project turn DGE off).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row

PARTITIONS = 128


def fetch(source: Any) -> Any:
    """A new tile in SBUF with what a window of HBM holds."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def tile_like(tile: Any) -> Any:
    """A new tile in SBUF of the same shape and type."""
    return nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)


def by_partition(tensor: Any) -> Any:
    """The same numbers in row-major order, cut into one row for each partition."""
    return tensor.reshape((PARTITIONS, prod(tensor.shape) // PARTITIONS))


# ---- SiLU -------------------------------------------------------------------------------------------------------


@nki.jit
def silu(x: Any, width: int) -> Any:
    """kda-silu-silu_v2_k2, _v3_s2, _v3_s7, _v3_s7_nested: load `width` columns, one activation, store.

    Dimensions: x [128, 32, 7168] -> the same. Two slices of 7168 at a time (k2), half a slice (s2), a seventh of one
    (s7). The nested form of s7 makes the same instructions in the same order as the flat one.
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    flat, flat_out = by_partition(x), by_partition(out)
    for start in nl.affine_range(flat.shape[1] // width):
        columns = slice(start * width, (start + 1) * width)
        tile = fetch(flat[:, columns])
        result = tile_like(tile)
        nisa.activation(dst=result, op=nl.silu, data=tile)
        nisa.dma_copy(dst=flat_out[:, columns], src=result)
    return out


@nki.jit
def silu_in_place(x: Any, width: int) -> Any:
    """kda-silu-silu_v2_k4: as `silu`, but the activation overwrites its argument, so that four slices fit in SBUF."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    flat, flat_out = by_partition(x), by_partition(out)
    for start in nl.affine_range(flat.shape[1] // width):
        columns = slice(start * width, (start + 1) * width)
        tile = fetch(flat[:, columns])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=flat_out[:, columns], src=tile)
    return out


# ---- AdamW ------------------------------------------------------------------------------------------------------


def adamw_step(out: Any, theta: Any, gradient: Any, first: Any, second: Any) -> None:
    """One tile: four loads, two passes of the Scalar and four of the Vector engine, a store.

    Pseudocode (weight decay 1e-5, learning rate 0.01, betas 0.9 and 0.999, first step; epsilon is left out):
        denominator = 1 / sqrt(999 second + gradient^2)
        out = 0.99999 theta - 0.001 (9 first + gradient) denominator
    """
    theta, gradient, first, second = fetch(theta), fetch(gradient), fetch(first), fetch(second)
    square, variance, inverse, moment, change, result = (tile_like(theta) for _ in range(6))
    nisa.activation(dst=square, op=nl.square, data=gradient)
    combine(variance, second, 999.0, nl.add, square)
    nisa.activation(dst=inverse, op=nl.rsqrt, data=variance)
    combine(moment, first, 9.0, nl.add, gradient)
    combine(change, moment, 0.001, nl.multiply, inverse)
    combine(result, theta, 0.99999, nl.subtract, change)
    nisa.dma_copy(dst=out, src=result)


def combine(dst: Any, data: Any, factor: float, op: Any, other: Any) -> None:
    """dst = (factor * data) op other, in one pass of the Vector engine."""
    nisa.scalar_tensor_tensor(dst=dst, data=data, op0=nl.multiply, operand0=factor, op1=op, operand1=other)


@nki.jit
def adamw_by_rows(theta: Any, gradient: Any, first: Any, second: Any) -> Any:
    """kda-adamw-adamw_v1: tiles of 128 whole rows of 2048; the last of the 86 has 64 (a mask in the original).

    Dimensions: all [10944, 2048] -> the same.
    """
    out = nl.ndarray(theta.shape, dtype=theta.dtype, buffer=nl.shared_hbm)
    height = theta.shape[0]
    for start in range(0, height, PARTITIONS):
        rows = slice(start, min(start + PARTITIONS, height))
        adamw_step(out[rows], theta[rows], gradient[rows], first[rows], second[rows])
    return out


@nki.jit
def adamw_by_columns(theta: Any, gradient: Any, first: Any, second: Any, width: int) -> Any:
    """kda-adamw-adamw_v2_ch*: the tensors seen as [128, 175104], taken `width` columns at a time.

    Dimensions: all [10944, 2048] -> the same. A partition reads one contiguous piece of `width` numbers.
    """
    out = nl.ndarray(theta.shape, dtype=theta.dtype, buffer=nl.shared_hbm)
    tensors = [by_partition(tensor) for tensor in (out, theta, gradient, first, second)]
    for start in range(0, tensors[0].shape[1], width):
        adamw_step(*(tensor[:, start : start + width] for tensor in tensors))
    return out


# ---- rotary embeddings --------------------------------------------------------------------------------------------


def pair(data1: Any, op: Any, data2: Any) -> Any:
    """A new tile in SBUF with data1 op data2."""
    result = nl.ndarray(data1.shape, dtype=data1.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=result, data1=data1, data2=data2, op=op)
    return result


@nki.jit
def rope_in_halves(x: Any, cosine: Any, sine: Any, width: int) -> Any:
    """kda-rope_single_freq_apply-rope_v1_w512 and _w4096: both halves of x on partitions 0 to 63, six Vector passes.

    Dimensions: x [128, S], cosine and sine [64, S] -> [128, S].

    Pseudocode, for each `width` columns:
        out[:64] = x[:64] cosine - x[64:] sine            # stored before the other half is computed
        out[64:] = x[64:] cosine + x[:64] sine
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = x.shape[0] // 2
    for start in range(0, x.shape[1], width):
        columns = slice(start, start + width)
        upper, lower = fetch(x[:half, columns]), fetch(x[half:, columns])
        cos, sin = fetch(cosine[:, columns]), fetch(sine[:, columns])
        even, odd = pair(upper, nl.multiply, cos), pair(lower, nl.multiply, sin)
        nisa.dma_copy(dst=out[:half, columns], src=pair(even, nl.subtract, odd))
        even, odd = pair(upper, nl.multiply, sin), pair(lower, nl.multiply, cos)
        nisa.dma_copy(dst=out[half:, columns], src=pair(odd, nl.add, even))
    return out


def load_twice(source: Any) -> Any:
    """A tile of twice the rows: loaded into its upper half, copied to the lower by the Scalar engine."""
    half, width = source.shape
    tile = nl.ndarray((2 * half, width), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[:half], src=source)
    nisa.activation(dst=tile[half:], op=nl.copy, data=tile[:half], scale=1.0)
    return tile


def exchange(tile: Any) -> Any:
    """The halves of a tile exchanged, the new upper one negated, by the Scalar engine."""
    half = tile.shape[0] // 2
    result = tile_like(tile)
    nisa.activation(dst=result[:half], op=nl.copy, data=tile[half:], scale=-1.0)
    nisa.activation(dst=result[half:], op=nl.copy, data=tile[:half], scale=1.0)
    return result


def exchange_matrix(rows: int) -> np.ndarray:
    """The stationary operand with which a product exchanges the halves of a tile as `exchange` does."""
    identity = np.identity(rows // 2, np.float32)
    return np.block([[0 * identity, identity], [-identity, 0 * identity]])


@nki.jit
def rope_packed(x: Any, cosine: Any, sine: Any, width: int, by_product: bool) -> Any:
    """kda-rope_single_freq_apply-rope_v2_layoutB_scalar, _w1024, _w256 and rope_v3_layoutB_pe_w256: three passes.

    Dimensions: x [128, S], cosine and sine [64, S] -> [128, S].

    Pseudocode, for each `width` columns:
        out = x [cosine; cosine] + [-x[64:]; x[:64]] [sine; sine]
    The Scalar engine makes the tiles of doubled and exchanged halves; with `by_product` (v3) the exchange is a float32
    product with a constant matrix instead, which the second pass reads in PSUM.
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    matrix = fetch(nl.shared_constant(exchange_matrix(x.shape[0]))) if by_product else None
    for start in range(0, x.shape[1], width):
        columns = slice(start, start + width)
        tile = fetch(x[:, columns])
        cos, sin = load_twice(cosine[:, columns]), load_twice(sine[:, columns])
        if by_product:
            exchanged = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=exchanged, stationary=matrix, moving=tile)
        else:
            exchanged = exchange(tile)
        even, odd = pair(tile, nl.multiply, cos), pair(exchanged, nl.multiply, sin)
        nisa.dma_copy(dst=out[:, columns], src=pair(even, nl.add, odd))
    return out


# ---- the rows -----------------------------------------------------------------------------------------------------


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _silu(kernel: Any, width: int) -> Case:
    return Case(kernel, (_zeros(PARTITIONS, 32, 7168), width), host_us)


def _adamw(kernel: Any, *widths: int) -> Case:
    return Case(kernel, (*(_zeros(10944, 2048) for _ in range(4)), *widths), host_us)


def _rope(kernel: Any, *options: int) -> Case:
    columns = 64 * 4096
    return Case(kernel, (_zeros(128, columns), _zeros(64, columns), _zeros(64, columns), *options), host_us)


row("kda-silu-silu_v2_k2", lambda: _silu(silu, 2 * 7168))
row("kda-silu-silu_v2_k4", lambda: _silu(silu_in_place, 4 * 7168))
row("kda-silu-silu_v3_s2", lambda: _silu(silu, 7168 // 2))
row("kda-silu-silu_v3_s7", lambda: _silu(silu, 7168 // 7))
row("kda-silu-silu_v3_s7_nested", lambda: _silu(silu, 7168 // 7))

row("kda-adamw-adamw_v1", lambda: _adamw(adamw_by_rows))
for _width in (576, 684, 912, 1152, 1536, 1824):
    row(f"kda-adamw-adamw_v2_ch{_width}", lambda width=_width: _adamw(adamw_by_columns, width))

_ROPE = "kda-rope_single_freq_apply-rope"
row(f"{_ROPE}_v1_w512", lambda: _rope(rope_in_halves, 512))
row(f"{_ROPE}_v1_w4096", lambda: _rope(rope_in_halves, 4096))
row(f"{_ROPE}_v2_layoutB_scalar", lambda: _rope(rope_packed, 2048, False))
row(f"{_ROPE}_v2_layoutB_scalar_w1024", lambda: _rope(rope_packed, 1024, False))
row(f"{_ROPE}_v2_layoutB_scalar_w256", lambda: _rope(rope_packed, 256, False))
row(f"{_ROPE}_v3_layoutB_pe_w256", lambda: _rope(rope_packed, 256, True))
