"""What a program is cached for: constants that differ, state that changes, what cannot be compared."""

from __future__ import annotations

import enum
import functools
import sys
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from tests.nki.kernels import compiled, f32, programs, scale, times

X = np.arange(8, dtype=f32).reshape(2, 4)


def test_same_call_is_staged_once() -> None:
    assert compiled(scale, X, 2.0) is compiled(scale, X + 1, 2.0)


class Level(enum.IntEnum):
    low = 1


class Degree(enum.IntEnum):
    first = 1


class Whole(int):
    pass


@dataclass
class Config:
    factor: float = 1.0
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Frozen:
    factor: float = 1.0


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor


class Under(Slotted):
    pass


class Items(list):  # type: ignore[type-arg]
    pass


def with_note(note: str) -> Items:
    items = Items([1])
    items.note = note  # type: ignore[attr-defined]
    return items


def adding(n: int) -> Any:
    return lambda x: x + n


DIFFERENT = [
    1,
    1.0,
    True,
    None,
    "1",
    b"1",
    -0.0,
    0.0,
    0,
    False,
    float("nan"),
    1j,
    (1,),
    [1],
    (1, (2,)),
    ((1, 2),),
    {"a": 1},
    {"a": 1.0},
    {"b": 1},
    {1},
    nl.float32,
    "float32",
    np.float32,
    np.dtype("float32"),
    np.float32(1),
    np.int32(1),
    Level.low,
    Degree.first,
    Whole(1),
    Whole(2),
    Config(),
    Config(2.0),
    Config(shape=(1,)),
    Frozen(),
    Frozen(2.0),
    Slotted(1),
    Slotted(2),
    Under(1),
    Under(2),
    with_note("a"),
    with_note("b"),
    range(3),
    slice(3),
    functools.partial(max, 1),
    functools.partial(max, 2),
    adding(1),
    adding(2),
    nl.add,
]


def key(value: Any) -> Any:
    arguments = scale.bind((X, value), {})
    kept.append(arguments)
    return arguments.key


kept: list[Any] = []


def test_constants_that_differ_have_different_keys() -> None:
    keys = [key(value) for value in DIFFERENT]
    assert None not in keys
    for index, one in enumerate(keys):
        equal = [DIFFERENT[i] for i, other in enumerate(keys) if one == other]
        assert len(equal) == 1, f"{DIFFERENT[index]!r} is taken for {equal}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: 1.5,
        lambda: "a" * 40,
        lambda: float("nan"),
        lambda: (1, [2, {"a": (3,)}]),
        lambda: Config(2.0),
        lambda: Frozen(2.0),
        lambda: Under(2),
        lambda: with_note("a"),
        lambda: {1, 2},
        lambda: adding(1),
        lambda: range(4),
        lambda: functools.partial(max, 1),
        lambda: (X, {"tensor": X}),
        lambda: Config(X),  # type: ignore[arg-type]
    ],
)
def test_constants_that_are_alike_have_one_key(make: Any) -> None:
    assert key(make()) is not None
    assert key(make()) == key(make())


def test_what_cannot_be_compared_is_not_cached() -> None:
    assert key(iter([1])) is None
    assert key(object.__new__(threading.Event)) is None

    @nki.jit
    def kernel(x, more):
        return times(x, float(next(more)))

    assert kernel(X, iter([3.0])).tolist() == (X * 3).tolist()
    assert kernel(X, iter([4.0])).tolist() == (X * 4).tolist()
    assert programs(kernel) == 0


def test_shapes_dtypes_and_targets_have_programs_of_their_own() -> None:
    @nki.jit
    def kernel(x):
        return times(x, 2.0)

    for array in (X, X.reshape(4, 2), X.astype(np.float16), X):
        assert kernel(array).tolist() == (array * 2).tolist()
    assert programs(kernel) == 3
    nki.simulate(kernel, target="trn1")(X)
    nki.simulate(kernel, target="trn2")(X)
    nki.simulate(kernel, target="gen3")(X)
    assert programs(kernel) == 5
    nki.simulate(kernel, sanitize=True)(X)
    kernel[1](X)
    assert programs(kernel) == 7


def test_the_cache_is_bounded() -> None:
    @nki.jit
    def kernel(x, n):
        return None

    for n in range(300):
        kernel(X, n)
    assert programs(kernel) == 256


class Factor:
    """A constant that can be called, and whose state may change."""

    shared = 1.0

    def __init__(self, own: float) -> None:
        self.own = own

    def __call__(self) -> float:
        return self.own * self.shared


def test_changed_attributes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    @nki.jit
    def kernel(x, factor):
        return times(x, factor() if callable(factor) else factor.own * factor.shared)

    factor = Factor(2.0)
    assert kernel(X, factor)[0, 1] == 2
    factor.own = 3.0
    assert kernel(X, factor)[0, 1] == 3
    monkeypatch.setattr(Factor, "shared", 5.0)
    assert kernel(X, factor)[0, 1] == 15
    assert programs(kernel) > 1


@dataclass
class Settings:
    own: float = 2.0


def test_changed_class_attribute_of_a_plain_object_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "shared", 1.0, raising=False)

    @nki.jit
    def kernel(x, settings):
        return times(x, settings.own * settings.shared)

    assert kernel(X, Settings())[0, 1] == 2
    monkeypatch.setattr(Settings, "shared", 4.0)
    assert kernel(X, Settings())[0, 1] == 8


LEVEL = 2.0


def test_changed_globals_and_closures_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    local = 1.0

    @nki.jit
    def kernel(x):
        return times(x, LEVEL * local)

    assert kernel(X)[0, 1] == 2
    monkeypatch.setattr(sys.modules[__name__], "LEVEL", 5.0)
    assert kernel(X)[0, 1] == 5
    local = 3.0
    assert kernel(X)[0, 1] == 15
    assert programs(kernel) == 1


def test_object_that_refers_to_itself() -> None:
    class Node:
        def __init__(self) -> None:
            self.me = self
            self.factor = 3.0

    @nki.jit
    def kernel(x, node):
        return times(x, node.me.me.factor)

    assert kernel(X, Node())[0, 1] == 3
