"""Running a function of tiles: `run(nl.add, x, y)` loads the arrays, calls it, and gives back what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

f32 = np.float32
bf16 = ml_dtypes.bfloat16


def up(tensor: Any, buffer: Any = nl.sbuf) -> Any:
    """A tile with the content of an HBM tensor."""
    tile = nl.load(tensor)
    if buffer is nl.sbuf:
        return tile
    other = nl.ndarray(tile.shape, tile.dtype, buffer)
    nisa.tensor_copy(other, tile)
    return other


def down(tile: Any) -> Any:
    """An output with the content of a tile."""
    if tile.buffer is nl.psum:
        tile = nl.copy(tile)
    result = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nl.store(result, tile)
    return result


def kernel_of(function: Callable[..., Any], buffer: Any = nl.sbuf) -> Any:
    """A kernel that applies `function` to its arguments as tiles."""

    @nki.jit
    def kernel(tensors):
        found = function(*[up(tensor, buffer) for tensor in tensors])
        return tuple(down(tile) for tile in found) if isinstance(found, tuple) else down(found)

    return kernel


def run(function: Callable[..., Any], *arrays: Any, buffer: Any = nl.sbuf, **options: Any) -> Any:
    """The arrays that `function` makes of these arrays."""
    return nki.simulate(kernel_of(function, buffer), **options)(tuple(np.asarray(a) for a in arrays))


def stage(function: Callable[[], Any], **options: Any) -> Any:
    """The program of a kernel without inputs; whatever `function` returns is dropped."""

    @nki.jit
    def kernel(x):
        function()
        return down(up(x))

    return kernel.ir(np.zeros((1, 1), f32), **options)


def mnemonics(program: Any) -> list[str]:
    """The instructions of a program, without the loads and stores around it."""
    return [node.mnemonic for node in program.instructions() if node.mnemonic != "dma_copy"]
