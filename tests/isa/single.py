"""Running one instruction inside a kernel: arrays become tiles, results come back as arrays. Tests nothing.

`run(nisa.tensor_tensor, dst=Out((4, 8)), data1=x, data2=y, op=nl.add)` gives what ends up in `dst`. What is called may
also be a function of several instructions. `tiles.py` has the pieces for kernels written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.errors import Diagnostic
from nki.ir.instruction import REGISTRY
from nki.target import get_target

f32 = np.float32
bf16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Out:
    """A tile the instruction writes, in PSUM if `psum`. `fill` is what it holds before."""

    shape: tuple[int, ...]
    dtype: Any = nl.float32
    psum: bool = False
    fill: Any = None


@dataclass(frozen=True)
class Psum:
    """An input tile in PSUM."""

    array: Any


def up(source: Any, psum: bool = False) -> Any:
    """A tile with the content of an HBM tensor."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    if not psum:
        return tile
    other = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.psum)
    nisa.tensor_copy(dst=other, src=tile, name="preparation")
    return other


def down(tile: Any) -> Any:
    """An output tensor with the content of a tile."""
    if tile.buffer is nl.psum:
        copy = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copy, src=tile, name="preparation")
        tile = copy
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=tile)
    return result


def fresh(out: Out) -> Any:
    """The tile that an `Out` describes."""
    tile = nl.ndarray(out.shape, dtype=out.dtype, buffer=nl.psum if out.psum else nl.sbuf)
    if out.fill is not None:
        nisa.memset(dst=tile, value=out.fill, name="preparation")
    return tile


def kernel_of(instruction: Any, arguments: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """A kernel that runs one instruction, and the arrays to call it with."""
    names = [name for name, value in arguments.items() if isinstance(value, (np.ndarray, Psum))]
    values = [arguments[name] for name in names]
    arrays = tuple(value.array if isinstance(value, Psum) else value for value in values)

    @nki.jit
    def kernel(tensors):
        given = dict(arguments)
        results = []
        for tensor, name in zip(tensors, names):
            given[name] = up(tensor, isinstance(arguments[name], Psum))
        for name, value in arguments.items():
            if isinstance(value, Out):
                given[name] = fresh(value)
                results.append(given[name])
        instruction(**given)
        outputs = [down(tile) for tile in results]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return kernel, arrays


def run(instruction: Any, target: str | None = None, **arguments: Any) -> Any:
    """What the instruction writes into its `Out` operands: one array, or a tuple in order."""
    kernel, arrays = kernel_of(instruction, arguments)
    return nki.simulate(kernel, target=target)(arrays)


def diagnose(instruction: Any, target: str | None = None, **arguments: Any) -> list[Diagnostic]:
    """What instructions say about themselves without being run."""
    kernel, arrays = kernel_of(instruction, arguments)
    return [found for found in kernel.check(arrays, target=target) if found.code in REGISTRY]


def staged(instruction: Any, target: str | None = None, **arguments: Any) -> Any:
    """The instruction as a node of the program, with its engine chosen."""
    kernel, arrays = kernel_of(instruction, arguments)
    program = kernel.ir(arrays, target=target)
    nodes = [node for node in program.instructions() if type(node) is instruction.instruction]
    return next(node for node in nodes if node.name != "preparation")


def interval(instruction: Any, target: str, **arguments: Any) -> int:
    """Cycles for which the instruction occupies its engine."""
    node = staged(instruction, target, **arguments)
    return sum(phase.interval for phase in node.cost(get_target(target)))


def normal(shape: tuple[int, ...], dtype: Any = f32, seed: int = 0) -> Any:
    """Reproducible random numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(f32).astype(dtype)


def same(found: Any, expected: Any) -> None:
    """Equal dtype, shape and values."""
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found.astype(f32), expected.astype(f32))
