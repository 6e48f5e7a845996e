"""Single DMAs: the two examples of nki-dma-overview.rst, its curve over row sizes, and what other pages say of DMAs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, Figure, duration_ns, row
from benchmarks.accuracy.kernels.probe_figures import (
    completing_ns,
    moving_ns,
    ready_interval_ns,
    relative_rate,
    served_ns,
    software_start_ns,
    table_load_ns,
    trigger_to_use_ns,
)

PARTITIONS = 128
AT_ONCE = 6
"""DMAs of one size in a row: as many tiles of the largest size as SBUF has room for."""

LARGEST = 32_768
CURVE = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
"""Bytes a partition; the largest is the point to which the others are relative."""


@nki.jit
def exponential(x: Any) -> Any:
    """exp(x): one load, one activation, one store.

    Dimensions: x [4, 4096] for dma-4x4096-*, act-4096 and act-tload, [128, 128] for dma-128-* and act-128; bfloat16.
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.activation(dst=result, op=nl.exp, data=tile)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def two_sizes(x: Any, small: int) -> Any:
    """`AT_ONCE` loads of `small` bytes a partition, then as many of all of x [128, bytes] uint8.  Rows dma-curve-*.

    The loads of one size depend on nothing but their queue; those of the second size reuse the tiles of the first.
    """
    out = nl.ndarray((PARTITIONS, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(AT_ONCE)]
    for size in (small, x.shape[1]):
        for tile in tiles:
            nisa.dma_copy(dst=tile[:, :size], src=x[:, :size])
    nisa.dma_copy(dst=out, src=tiles[-1][:, :1])
    return out


@nki.jit
def copies(x: Any, count: int, mode: Any) -> Any:
    """`count` loads of x into tiles of their own, and back from the last.

    Rows dge ([128, 128] bfloat16, hardware descriptors), dma-32k-trn1 ([8, 1024] float32), dma-4b-trn1 ([1, 1]).
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(count)]
    for tile in tiles:
        nisa.dma_copy(dst=tile, src=x, dge_mode=mode)
    nisa.dma_copy(dst=out, src=tiles[-1], dge_mode=mode)
    return out


def example(rows: int, columns: int, figure: Figure) -> Case:
    """One of the two examples."""
    return Case(exponential, (np.zeros((rows, columns), ml_dtypes.bfloat16),), figure)


def curve(size: int) -> Case:
    """A point of the curve."""
    figure = relative_rate(AT_ONCE, size / LARGEST)
    return Case(two_sizes, (np.zeros((PARTITIONS, LARGEST), np.uint8), size), figure)


def lone(rows: int, columns: int) -> Case:
    """One DMA engine moving a float32 tile out: how long it has data to move."""
    return Case(copies, (np.zeros((rows, columns), np.float32), 1, nisa.dge_mode.unknown), moving_ns(1))


for _size in CURVE:
    row(f"dma-curve-{_size}", lambda size=_size: curve(size))

row("dma-4x4096-load", lambda: example(4, 4096, moving_ns(0)))
row("dma-4x4096-sem", lambda: example(4, 4096, completing_ns(0)))
row("dma-4x4096-store", lambda: example(4, 4096, moving_ns(1)))
row("act-4096", lambda: example(4, 4096, duration_ns("activation")))
row("act-tload", lambda: example(4, 4096, table_load_ns("activation")))

row("dma-128-eng", lambda: example(128, 128, served_ns(0)))
row("dma-128-q", lambda: example(128, 128, moving_ns(0)))
row("dma-128-trig", lambda: example(128, 128, software_start_ns(0)))
row("dma-128-total", lambda: example(128, 128, trigger_to_use_ns(0)))
row("act-128", lambda: example(128, 128, duration_ns("activation")))

row("dma-32k-trn1", lambda: lone(8, 1024))
row("dma-4b-trn1", lambda: lone(1, 1))
row(
    "dge",
    lambda: Case(
        copies,
        (np.zeros((PARTITIONS, 128), ml_dtypes.bfloat16), AT_ONCE, nisa.dge_mode.hwdge),
        ready_interval_ns(AT_ONCE),
    ),
)
