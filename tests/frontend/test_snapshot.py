"""Values of all kinds, kept in a global that a function reads: told apart when they differ, alike when they do not."""

from __future__ import annotations

import collections
import enum
import functools
import logging
import math
import random
import re
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from nki.frontend import Dependencies

VALUE: Any = 1


@dataclass
class Config:
    n: int = 1
    names: list[str] = field(default_factory=list)


class Slotted:
    __slots__ = ("a", "b")


class Listed(list[int]):
    pass


class Pair(NamedTuple):
    a: int
    b: Any


class Color(enum.Enum):
    red = 1
    blue = 2


def helper(x: int) -> int:
    return x


def reader() -> Any:
    return VALUE


def recorded(fn: Any) -> Dependencies:
    dependencies = Dependencies()
    dependencies.record(fn)
    return dependencies


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = dict(globals())
    yield
    globals().update(before)


def slotted(value: Any) -> Slotted:
    result = Slotted()
    result.a = value
    return result


def listed(value: Any) -> Listed:
    result = Listed([1])
    result.extra = value  # type: ignore[attr-defined]
    return result


def cyclic(value: Any) -> list[Any]:
    result = [value]
    result.append(result)
    return result


NAN = float("nan")
# Two makers of equal values, and values that differ from them and from each other.
VALUES: list[tuple[Any, ...]] = [
    (lambda: None, lambda: False, lambda: 0),
    (lambda: 1, lambda: 1.0, lambda: True, lambda: 2, lambda: 1 + 0j, lambda: np.float32(1), lambda: "1"),
    (lambda: float("nan"), lambda: 0.0, lambda: -0.0, lambda: None),
    (lambda: 10**30, lambda: 10**30 + 1),
    (lambda: "a" * 3, lambda: "b", lambda: b"aaa", lambda: bytearray(b"aaa")),
    (lambda: (1, (2.0, "x")), lambda: (1, (2, "x")), lambda: [1, (2.0, "x")], lambda: (1,)),
    (lambda: [1, [2]], lambda: [1, [3]], lambda: (1, [2])),
    (
        lambda: [1] * 20,
        lambda: [1] * 19 + [True],
        lambda: [1] * 19 + [1.0],
        lambda: (1,) * 20,
        lambda: [1] * 21,
    ),
    (lambda: {"a": 1, "b": [2]}, lambda: {"b": [2], "a": 1}, lambda: {"a": 1, "b": [2.0]}, lambda: {}),
    (lambda: {1, 2}, lambda: {1, 3}, lambda: frozenset({1, 2})),
    (lambda: collections.deque([1], 3), lambda: collections.deque([1]), lambda: [1]),
    (
        lambda: collections.defaultdict(int, a=1),
        lambda: collections.defaultdict(float, a=1),
        lambda: {"a": 1},
    ),
    (lambda: collections.OrderedDict(a=1), lambda: collections.OrderedDict(a=2)),
    (lambda: types.SimpleNamespace(a=1), lambda: types.SimpleNamespace(a=2)),
    (lambda: np.arange(4), lambda: np.arange(4.0), lambda: np.arange(5), lambda: np.arange(4).reshape(2, 2)),
    (lambda: np.float32(NAN), lambda: np.float64(NAN), lambda: np.float32(0)),
    (lambda: np.dtype("float32"), lambda: np.dtype("float16"), lambda: np.float32),
    (lambda: slice(1, None), lambda: slice(1, 2), lambda: range(1, 2), lambda: range(1, 3)),
    (lambda: Color.red, lambda: Color.blue, lambda: 1),
    (lambda: Config(1, ["a"]), lambda: Config(1, ["b"]), lambda: Config(1.0, ["a"])),  # type: ignore[arg-type]
    (lambda: slotted(1), lambda: slotted(2), Slotted),
    (lambda: listed(1), lambda: listed(2), lambda: [1]),
    (lambda: Pair(1, [2]), lambda: Pair(1, [3]), lambda: (1, [2])),
    (lambda: cyclic(1), lambda: cyclic(2)),
    (lambda: Path("a") / "b", lambda: Path("a")),
    (lambda: math, lambda: np, lambda: Config, lambda: np.sum, lambda: len, lambda: math.pi),
    (
        lambda: helper,
        lambda: reader,
        lambda: functools.partial(helper, 1),
        lambda: functools.partial(helper, 2),
    ),
    (lambda: Config(1).__eq__, lambda: Config(2).__eq__),
    (lambda: re.compile("a"), lambda: re.compile("b")),
    (lambda: logging.getLogger("a"), lambda: logging.getLogger("b")),
    (lambda: [helper], lambda: [reader]),
]


@pytest.mark.parametrize("row", range(len(VALUES)))
def test_values_are_told_apart(row: int) -> None:
    global VALUE
    for kept in VALUES[row]:
        VALUE = kept()
        dependencies = recorded(reader)
        assert dependencies.cacheable and dependencies.reason is None
        assert dependencies.unchanged()
        for other in VALUES[row]:
            VALUE = other()
            assert dependencies.unchanged() == (other is kept), (kept(), VALUE)
        VALUE = kept()
        assert dependencies.unchanged()


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [1], lambda v: v.append(2)),
        (lambda: {"a": [1]}, lambda v: v["a"].append(2)),
        (lambda: (1, [2]), lambda v: v[1].append(2)),
        (lambda: np.zeros(3), lambda v: v.__setitem__(0, 1)),
        (lambda: Config(), lambda v: setattr(v, "n", 2)),
        (lambda: Config(), lambda v: v.names.append("x")),
        (lambda: slotted([1]), lambda v: v.a.append(2)),
        (lambda: {1}, lambda v: v.add(2)),
    ],
)
def test_changes_in_place_are_seen(make: Any, change: Any) -> None:
    global VALUE
    VALUE = make()
    dependencies = recorded(reader)
    assert dependencies.unchanged()
    change(VALUE)
    assert not dependencies.unchanged()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (iter([1]), "list_iterator"),
        (random.Random(1), "random.Random"),
        (np.zeros(100_000), "800000 bytes"),
        (np.array([None]), "Python objects"),
        (threading.Lock(), "lock"),
        ([iter([1])], "list_iterator"),
        (list(range(30_000)), "many parts"),
        (np.random.default_rng(1), "Generator"),
        ({"a": (i for i in ())}, "generator"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_compared(value: Any, why: str) -> None:
    global VALUE
    VALUE = value
    dependencies = recorded(reader)
    if why == "many parts":  # atoms are cheap; parts are
        VALUE = [[i] for i in range(30_000)]
        dependencies = recorded(reader)
    assert not dependencies.cacheable and not dependencies.unchanged()
    assert dependencies.reason is not None and why in dependencies.reason and "`VALUE`" in dependencies.reason
