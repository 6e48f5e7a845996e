"""Pieces of the tests of collectives: a group of one rank, running kernels both ways, refused calls. Tests nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.ir.instruction import Instruction

ALONE = ncc.ReplicaGroup([[0]])
X = np.arange(32, dtype=np.float32).reshape(4, 8)


def hbm(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A new tensor in shared HBM."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def sbuf(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A new tile."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def load(tensor: Any) -> Any:
    """A tile with the content of a tensor."""
    tile = sbuf(tensor.shape, tensor.dtype)
    nisa.dma_copy(dst=tile, src=tensor)
    return tile


def store(tile: Any) -> Any:
    """A tensor with the content of a tile."""
    tensor = hbm(tile.shape, tile.dtype)
    nisa.dma_copy(dst=tensor, src=tile)
    return tensor


def run(function: Callable[..., Any], *arrays: Any, target: str = "trn2") -> Any:
    """What a kernel returns, planned and eagerly: the same bits."""
    kernel = nki.jit(function)
    found = nki.simulate(kernel, target=target)(*arrays)
    eager = nki.simulate(kernel, target=target, eager=True)(*arrays)
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, eager))):
        assert one.tobytes() == other.tobytes()
    return found


def refused(
    function: Callable[..., Any], kind: type[Exception], text: str, *arrays: Any, target: str = "trn2"
) -> None:
    """Staging the kernel raises an error of this class with this text."""
    with pytest.raises(kind, match=text):
        nki.jit(function).ir(*(arrays or (X,)), target=target)


def noted(function: Callable[..., Any], *arrays: Any, target: str = "trn2") -> list[tuple[str, str]]:
    """Severity and first line of what there is to say about a kernel."""
    found = nki.jit(function).check(*(arrays or (X,)), target=target)
    return [(diagnostic.severity, diagnostic.message.split("\n")[0]) for diagnostic in found]


def node(function: Any, **values: Any) -> Instruction:
    """An instruction that was not verified: for costs of groups that a run does not have."""
    cls = function.instruction
    given = {name: spec.default for name, spec in cls.parameters.items()}
    made: Instruction = cls({**given, **values})
    return made
