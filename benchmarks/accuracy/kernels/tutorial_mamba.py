"""The three versions of the Mamba tutorial (fused_mamba.rst), as of release 2.20, in which its profiles were made.

Letters used in every docstring here:
  c  channels, 128 to a tile    n  states    s  length of the sequence
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row

TILE = 128
STATES = 16


def load(window: Any) -> Any:
    """A new SBUF tile with what is in a window of HBM."""
    tile = nl.ndarray(window.shape, dtype=window.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=window)
    return tile


def fill(shape: tuple[int, int], value: float) -> Any:
    """A float32 tile in SBUF with one number everywhere."""
    tile = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=value)
    return tile


def multiply(left: Any, right: Any) -> Any:
    """left * right as a new tile in SBUF."""
    tile = nl.ndarray(left.shape, dtype=left.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=tile, data1=left, data2=right, op=nl.multiply)
    return tile


def spread(ones: Any, line: Any) -> Any:
    """A line [1, s] on all partitions, in PSUM, where its user reads it: a product with a row of ones."""
    tile = nl.ndarray((TILE, line.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=tile, stationary=ones, moving=line)
    return tile


def add_state(sums: Any, delta: Any, u: Any, column: Any, b: Any, c: Any, ones: Any, first: Any) -> Any:
    """sums += c * scan(exp(delta * column), delta * u * b), for one state of one tile; returns the scan.

    Dimensions: sums, delta, u [128, s] and column [128, 1] in SBUF; b, c [1, s] in HBM; first: a number or [128, 1].
    """
    decay = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.sbuf)
    nisa.activation(dst=decay, op=nl.exp, data=delta, scale=column)
    line = load(b)
    drive = multiply(delta, u)
    drive = multiply(drive, spread(ones, line))
    scan = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor_scan(dst=scan, data0=decay, data1=drive, initial=first, op0=nl.multiply, op1=nl.add)
    line = load(c)
    result = multiply(scan, spread(ones, line))
    nisa.tensor_tensor(dst=sums, data1=sums, data2=result, op=nl.add)
    return scan


@nki.jit
def mamba_v1(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """States outside, channels inside; everything is loaded for each.  Rows mamba-v1-256, mamba-v1-c4096-prof.

    Dimensions: delta, u [c, s], a [c, n], b, c [n, s] -> [c, s].
    """
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = fill((1, TILE), 1.0)
    starts = range(0, delta.shape[0], TILE)
    sums = [fill((TILE, delta.shape[1]), 0.0) for _ in starts]
    for state in range(a.shape[1]):
        at = slice(state, state + 1)
        for i in range(len(starts)):
            rows = slice(starts[i], starts[i] + TILE)
            delta_tile, column, u_tile = load(delta[rows, :]), load(a[rows, at]), load(u[rows, :])
            add_state(sums[i], delta_tile, u_tile, column, b[at, :], c[at, :], ones, 0.0)
    for i in range(len(starts)):
        nisa.dma_copy(dst=out[starts[i] : starts[i] + TILE, :], src=sums[i])
    return out


@nki.jit
def mamba_v2(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """Channels outside, states inside: delta and u are loaded once.  Row mamba-v2-c4096-prof.

    Dimensions: delta, u [c, s], a [c, n], b, c [n, s] -> [c, s].
    """
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = fill((1, TILE), 1.0)
    for start in range(0, delta.shape[0], TILE):
        rows = slice(start, start + TILE)
        sums = fill((TILE, delta.shape[1]), 0.0)
        delta_tile, u_tile = load(delta[rows, :]), load(u[rows, :])
        for state in range(a.shape[1]):
            at = slice(state, state + 1)
            add_state(sums, delta_tile, u_tile, load(a[rows, at]), b[at, :], c[at, :], ones, 0.0)
        nisa.dma_copy(dst=out[rows, :], src=sums)
    return out


@nki.jit
def mamba_v3(delta: Any, u: Any, a: Any, b: Any, c: Any, width: int) -> Any:
    """v2 with the sequence in pieces of `width`, innermost; the scan goes on where it was.  Rows mamba-v3-*.

    Dimensions: delta, u [c, s], a [c, n], b, c [n, s] -> [c, s].
    """
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = fill((1, TILE), 1.0)
    for start in range(0, delta.shape[0], TILE):
        rows = slice(start, start + TILE)
        sums = fill((TILE, delta.shape[1]), 0.0)
        delta_tile, u_tile = load(delta[rows, :]), load(u[rows, :])
        for state in range(a.shape[1]):
            at = slice(state, state + 1)
            column, last = load(a[rows, at]), fill((TILE, 1), 0.0)
            for piece in range(0, delta.shape[1], width):
                part = slice(piece, piece + width)
                windows = sums[:, part], delta_tile[:, part], u_tile[:, part]
                scan = add_state(*windows, column, b[at, part], c[at, part], ones, last)
                nisa.tensor_copy(dst=last, src=scan[:, width - 1 : width])
        nisa.dma_copy(dst=out[rows, :], src=sums)
    return out


def case(kernel: Any, channels: int, length: int, *more: Any) -> Case:
    """A version on float32 operands of a batch of one."""
    wide, lines = np.zeros((channels, length), np.float32), np.zeros((STATES, length), np.float32)
    return Case(kernel, (wide, wide, np.zeros((channels, STATES), np.float32), lines, lines, *more), host_us)


row("mamba-v1-256", lambda: case(mamba_v1, 256, 512))
row("mamba-v1-c4096-prof", lambda: case(mamba_v1, 4096, 512))
row("mamba-v2-c4096-prof", lambda: case(mamba_v2, 4096, 512))
row("mamba-v3-512", lambda: case(mamba_v3, 4096, 512, 512))
row("mamba-v3-2048", lambda: case(mamba_v3, 4096, 2048, 512))
