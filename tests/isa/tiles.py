"""Steps that kernels of the instruction tests share: tiles, loads, stores, and how to look at what was staged."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.ir.instruction import Instruction
from nki.ir.program import Program


def sbuf(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A fresh SBUF tile."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A fresh PSUM tile."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def load(tensor: Any) -> Any:
    """An HBM tensor in a new SBUF tile."""
    tile = sbuf(tensor.shape, tensor.dtype)
    nisa.dma_copy(dst=tile, src=tensor)
    return tile


def store(tile: Any) -> Any:
    """A tile, from SBUF or PSUM, in a new output."""
    output = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    if tile.buffer == nl.psum:
        copy = sbuf(tile.shape, tile.dtype)
        nisa.tensor_copy(dst=copy, src=tile)
        tile = copy
    nisa.dma_copy(dst=output, src=tile)
    return output


def run(kernel: Any, *arrays: Any, target: str = "trn2") -> Any:
    """The kernel's outputs on the machine."""
    return nki.simulate(kernel, target=target)(*arrays)


def staged(kernel: Any, mnemonic: str, *arrays: Any, target: str = "trn2") -> list[Instruction]:
    """The instructions of one kind that the kernel stages."""
    program: Program = kernel.ir(*arrays, target=target)
    return [instruction for instruction in program.instructions() if instruction.mnemonic == mnemonic]


def whole_numbers(shape: tuple[int, ...], low: int = -4, high: int = 5, seed: int = 0) -> np.ndarray:
    """Small whole numbers in float32: sums of products of them are exact in every order."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.float32)
