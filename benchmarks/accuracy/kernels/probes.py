"""Single compute instructions, as they appear in the profiles of nki_perf_guide.rst and use-neuron-profile.rst."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, Figure, duration_ns, row
from benchmarks.accuracy.kernels.probe_figures import rhythm_ns, scaled, step_ns, warm_up_us

CHAIN = 16
STREAM = 32


def fill(shape: tuple[int, int], dtype: Any) -> Any:
    """A tile of ones in SBUF."""
    tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=1.0)
    return tile


@nki.jit
def pair(a: Any, op: Any) -> Any:
    """op(a, ones), both in SBUF: rows tt-8192-64p (add, figure 17) and tt-8192-128p (multiply, figure 10)."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left, right = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf), fill(a.shape, a.dtype)
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.tensor_tensor(dst=result, data1=left, data2=right, op=op)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def identity_chain(a: Any) -> Any:
    """One element a partition through ACTIVATE identity again and again: rows act-1-dur, act-1-ii (figure 16)."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    value = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=value, src=a)
    for _ in range(CHAIN):
        result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.activation(dst=result, op=nl.copy, data=value)
        value = result
    nisa.dma_copy(dst=out, src=value)
    return out


@nki.jit
def products(moving: Any, columns: int, count: int) -> Any:
    """`count` products of ones [128, columns] with moving [128, n] that accumulate in one PSUM bank.

    Rows mm-96, mm-1col and ls-1col (bfloat16, 96 and 1 columns, n = 128), mlp3-mm and ko-v5-mm-ii (float32,
    128 columns, n = 512), throttle (bfloat16, 128 columns, n = 512, from a cold start).
    """
    depth, width = moving.shape
    out = nl.ndarray((columns, width), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray(moving.shape, dtype=moving.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=moving)
    stationary = fill((depth, columns), moving.dtype)
    sums = nl.ndarray((columns, width), dtype=nl.float32, buffer=nl.psum)
    for _ in range(count):
        nisa.nc_matmul(dst=sums, stationary=stationary, moving=tile)
    result = nl.ndarray(sums.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=sums)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def transposed(a: Any) -> Any:
    """a [128, 128] transposed on the Tensor engine: row mm-transpose (bfloat16, figure 26)."""
    out = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    turned = nl.ndarray(out.shape, dtype=a.dtype, buffer=nl.psum)
    result = nl.ndarray(out.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.nc_transpose(dst=turned, data=tile, engine=nisa.tensor_engine)
    nisa.tensor_copy(dst=result, src=turned)
    nisa.dma_copy(dst=out, src=result)
    return out


def product(columns: int, width: int, dtype: Any, figure: Figure) -> Case:
    """A stream of products."""
    return Case(products, (np.zeros((128, width), dtype), columns, STREAM), figure)


def addition(partitions: int, op: Any) -> Case:
    """One instruction of 8192 float32 elements a partition."""
    return Case(pair, (np.zeros((partitions, 8192), np.float32), op), duration_ns("tensor_tensor"))


def small(figure: Figure) -> Case:
    """The chain on one element a partition."""
    return Case(identity_chain, (np.zeros((128, 1), np.float32),), figure)


BFLOAT16 = ml_dtypes.bfloat16

row("tt-8192-64p", lambda: addition(64, nl.add))
row("tt-8192-128p", lambda: addition(128, nl.multiply))
row("act-1-dur", lambda: small(duration_ns("activation", 1)))
row("act-1-ii", lambda: small(rhythm_ns("activation", 1)))

row("mm-96", lambda: product(96, 128, BFLOAT16, step_ns("nc_matmul", "multiply_moving", waited=1)))
row("mm-1col", lambda: product(1, 128, BFLOAT16, step_ns("nc_matmul", "multiply_moving", waited=25)))
row("ls-1col", lambda: product(1, 128, BFLOAT16, step_ns("nc_matmul", "load_stationary", waited=25)))
row("mlp3-mm", lambda: product(128, 512, np.float32, step_ns("nc_matmul", "multiply_moving")))
row("ko-v5-mm-ii", lambda: product(128, 512, np.float32, scaled(rhythm_ns("nc_matmul", STREAM // 2), 0.5)))
row("throttle", lambda: product(128, 512, BFLOAT16, warm_up_us("nc_matmul")))
row(
    "mm-transpose",
    lambda: Case(
        transposed, (np.zeros((128, 128), BFLOAT16),), step_ns("nc_transpose", "transpose", waited=17)
    ),
)
