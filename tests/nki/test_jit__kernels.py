"""What may be a kernel: functions, methods, decorated, jitted inside jitted."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.jit import Kernel
from tests.nki.kernels import down, f32, programs, scale, times, up

X = np.arange(8, dtype=f32).reshape(2, 4)


def passing_on(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Layer:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    @nki.jit
    def method(self, x):
        return times(x, self.factor)

    @staticmethod
    @nki.jit
    def static(x):
        return times(x, 5.0)

    @classmethod
    def of_class(cls, x):
        return times(x, 6.0)

    def __call__(self, x):
        return times(x, self.factor)


@nki.jit
@passing_on
def decorated(x, factor=2.0):
    return times(x, factor)


@nki.jit()
def star(first, *rest, factor=1.0, **more):
    return times(rest[0] if rest else first, factor * more.get("again", 1.0))


@nki.jit
def positional(x, /, factor, *, again=1.0):
    return times(x, factor * again)


@pytest.mark.parametrize(
    ("call", "factor"),
    [
        (lambda: decorated(X), 2),
        (lambda: decorated(X, factor=3.0), 3),
        (lambda: star(X), 1),
        (lambda: star(X, X, factor=4.0), 4),
        (lambda: star(X, factor=2.0, again=3.0), 6),
        (lambda: positional(X, 3.0), 3),
        (lambda: positional(X, factor=3.0, again=2.0), 6),
        (lambda: Layer(4.0).method(X), 4),
        (lambda: Layer.static(X), 5),
        (lambda: Layer(1.0).static(X), 5),
        (lambda: nki.jit(Layer.of_class)(X), 6),
        (lambda: nki.jit(Layer(7.0))(X), 7),
        (lambda: nki.jit(functools.partial(times, factor=8.0))(X), 8),
        (lambda: nki.simulate(lambda x: times(x, 9.0))(X), 9),
        (lambda: nki.simulate(times)(X, 3.0), 3),
        (lambda: scale[1](X, 2.0), 2),
        (lambda: scale[(1,)](factor=2.0, x=X), 2),
        (lambda: nki.simulate(scale[1])(X, 2.0), 2),
        (lambda: nki.jit(scale)(X, 2.0), 2),
    ],
)
def test_all_sorts_of_functions(call: Any, factor: float) -> None:
    np.testing.assert_array_equal(call(), X * factor)


def test_kernel_without_arguments() -> None:
    @nki.jit
    def kernel():
        return down(nl.ones((2, 2), dtype=nl.float32, buffer=nl.sbuf))

    assert kernel().tolist() == [[1, 1], [1, 1]]


@nki.jit
def inner(tile, more):
    nisa.tensor_tensor(dst=tile, data1=tile, data2=more, op=nl.add)
    return tile, up_again(more)


@nki.jit
def up_again(tile):
    other = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=other, src=tile)
    return other


@nki.jit
def outer(x):
    tile = up(x)
    same, other = inner(tile, tile)
    assert same is tile
    return down(same), down(inner[1](other, tile)[0])


def test_inner_kernels_inline() -> None:
    first, second = outer(X)
    np.testing.assert_array_equal(first, X * 2)
    np.testing.assert_array_equal(second, X * 4)
    assert programs(inner) == programs(up_again) == 0


def test_recursion_and_generators() -> None:
    def power(x, n):
        return x if n == 0 else power(doubled(x), n - 1)

    def doubled(tile):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        return tile

    @nki.jit
    def kernel(x):
        tiles = (up(x) for _ in range(2))
        next(tiles)
        return down(power(next(tiles), 3))

    np.testing.assert_array_equal(kernel(X), X * 8)


def test_copies_and_pickles_are_the_kernel_itself() -> None:
    assert copy.copy(scale) is scale
    assert copy.deepcopy([scale])[0] is scale
    assert pickle.loads(pickle.dumps(scale)) is scale


def test_old_keywords_of_jit() -> None:
    with pytest.warns(DeprecationWarning, match="mode="):
        assert isinstance(nki.jit(times, mode="auto"), Kernel)
    assert isinstance(nki.jit(debug_kernel=True)(times), Kernel)
    with pytest.raises(errors.UnknownKeywordError):
        nki.jit(times, no_such="thing")


@pytest.mark.parametrize("grid", [0, -1, True, (1, 1), "1", None])
def test_other_grids_are_refused(grid: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="number of cores"):
        scale[grid]
