"""Steps that kernels of the tests share. Tests nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.jit import Kernel, Options

f32 = np.float32


def up(source: Any, **where: Any) -> Any:
    """An HBM tensor in a new SBUF tile."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf, **where)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def down(tile: Any) -> Any:
    """A tile in a new output."""
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=tile)
    return result


def times(x: Any, factor: float) -> Any:
    """An output with x times a number."""
    tile = up(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    return down(tile)


@nki.jit
def scale(x, factor):
    return times(x, float(factor))


def programs(kernel: Kernel) -> int:
    """How many programs the kernel keeps."""
    return len(kernel._cache)


def compiled(kernel: Kernel, *args: Any) -> Any:
    """The program, plan and all for these arguments."""
    return kernel.compiled(Options(), args, {})
