"""Steps that the rules' tests share: what a view of a tile or of an HBM tensor reads, and kernels made of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
from nki.errors import NkiError
from tests.isa.tiles import load, sbuf, store

f32 = np.float32


def on_chip(view: Callable[[Any], Any], x: np.ndarray, target: str = "trn2") -> np.ndarray:
    """What a view of a tile with the content of `x` reads, by a copy on the Vector engine."""

    @nki.jit
    def kernel(x):
        seen = view(load(x))
        copy = sbuf(seen.shape, seen.dtype)
        nisa.tensor_copy(dst=copy, src=seen)
        return store(copy)

    return nki.simulate(kernel, target=target)(x)


def in_hbm(view: Callable[..., Any], x: np.ndarray, *more: np.ndarray, target: str = "trn2") -> np.ndarray:
    """What a view of an HBM tensor reads, by DMA; tiles with the content of `more` are passed on to `view`."""

    @nki.jit
    def kernel(x, more):
        return store(load(view(x, *map(load, more))))

    return nki.simulate(kernel, target=target)(x, tuple(more))


def kernel_of(body: Callable[..., Any]) -> Any:
    """A kernel of one tensor whose body gets it as a tile; a tile that the body returns is the result."""

    @nki.jit
    def kernel(x):
        result = body(load(x))
        return x if result is None else store(result)

    return kernel


def refused(body: Callable[..., Any], x: Any = None, target: str = "trn2") -> NkiError:
    """The error of a kernel whose body gets `x` as a tile."""
    with pytest.raises(NkiError) as caught:
        nki.simulate(kernel_of(body), target=target)(np.ones((4, 8), f32) if x is None else x)
    return caught.value


def counted(*shape: int, dtype: Any = f32) -> np.ndarray:
    """0, 1, 2, ... in this shape."""
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)
