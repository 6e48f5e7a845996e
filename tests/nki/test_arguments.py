"""Tensors in and out: NumPy, PyTorch and others, any layout, inside containers; and what is refused."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.arguments import collect
from nki.objects import NKIObject
from tests.nki.kernels import down, f32, up

X = np.arange(12, dtype=f32).reshape(3, 4)


@nki.jit
def through(x):
    return down(up(x))


@nki.jit
def zeroed(x):
    nisa.dma_copy(dst=x, src=nl.zeros(x.shape, dtype=x.dtype, buffer=nl.sbuf))
    return x


both = pytest.mark.parametrize("eager", [False, True])

DTYPES = (
    np.bool_,
    np.int8,
    np.int16,
    np.int32,
    np.uint8,
    np.uint16,
    np.uint32,
    np.float16,
    np.float32,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
)


@both
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_dtypes_go_through_bit_by_bit(dtype: Any, eager: bool) -> None:
    bits = np.random.default_rng(0).integers(0, 256, (3, 4 * np.dtype(dtype).itemsize), np.uint8)
    x = bits.view(dtype) if dtype is not np.bool_ else bits > 99
    found = nki.simulate(through, eager=eager)(x)
    assert found.dtype == x.dtype
    assert found.tobytes() == x.tobytes()


LAYOUTS = {
    "fortran": np.asfortranarray(X),
    "transposed": X.T,
    "strided": np.repeat(np.repeat(X, 2, 0), 3, 1)[::2, ::3],
    "reversed": X[::-1, ::-1],
    "broadcast": np.broadcast_to(X[:1], (3, 4)),
    "read_only": np.frombuffer(X.tobytes(), f32).reshape(3, 4),
    "unaligned": np.frombuffer(b"0" + X.tobytes(), np.uint8)[1:].view(f32).reshape(3, 4),
    "subclass": X.view(np.matrix),
}


@both
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, eager: bool) -> None:
    array = LAYOUTS[name]
    found = nki.simulate(through, eager=eager)(array)
    assert type(found) is np.ndarray and found.flags.c_contiguous
    np.testing.assert_array_equal(found, np.asarray(array))


def test_zero_dimensional_arrays_have_one_element() -> None:
    @nki.jit
    def kernel(x):
        return down(up(x.reshape((1, 1))))

    assert kernel(np.array(3, f32)).tolist() == [[3]]
    assert through.bind((np.float32(3),), {}).leaves == []  # a NumPy scalar is a constant


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (X.astype(np.float64), ("float64", "float32")),
        (X.astype(np.int64), ("int64", "int32")),
        (X.astype(np.uint64), ("uint64",)),
        (X.astype(np.complex64), ("complex64", "two float32")),
        (X.astype(">f4"), (">f4",)),
        (np.array(["a"]), ("<U1",)),
        (np.array([None]), ("object",)),
        (np.zeros(2, "f4,i4"), ("f4",)),
    ],
)
def test_types_that_nki_does_not_have(array: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(TypeError) as info:
        through(array)
    assert isinstance(info.value, errors.DtypeError)
    for word in ("`x`", __file__, *words):
        assert word in str(info.value)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,)])
def test_empty_arrays_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(errors.ShapeError, match="`x` has no elements"):
        through(np.zeros(shape, f32))


# --- containers ---------------------------------------------------------------------------------------------


@dataclass
class Pair:
    first: Any
    second: Any = None


@dataclass(frozen=True)
class FrozenPair:
    first: Any
    second: Any = None


class SlotPair:
    __slots__ = ("first", "second")

    def __init__(self, first: Any, second: Any = None) -> None:
        self.first, self.second = first, second


class Weights(NKIObject):
    first: Any
    second: Any = None


Point = collections.namedtuple("Point", ["first", "second"])


class Many(list):  # type: ignore[type-arg]
    pass


class Table(dict):  # type: ignore[type-arg]
    pass


def default_table(**items: Any) -> Any:
    table = collections.defaultdict(int)
    table.update(items)
    return table


GIVEN = {
    "tuple": (lambda a, b: (a, b), lambda v: v),
    "list": (lambda a, b: [a, b], lambda v: v),
    "named_tuple": (Point, lambda v: v),
    "list_subclass": (lambda a, b: Many([a, b]), lambda v: v),
    "dict": (lambda a, b: {"first": a, "second": b}, lambda v: v.values()),
    "ordered_dict": (lambda a, b: collections.OrderedDict(first=a, second=b), lambda v: v.values()),
    "default_dict": (lambda a, b: default_table(first=a, second=b), lambda v: v.values()),
    "dict_subclass": (lambda a, b: Table(first=a, second=b), lambda v: v.values()),
    "dataclass": (Pair, lambda v: (v.first, v.second)),
    "frozen": (FrozenPair, lambda v: (v.first, v.second)),
    "slots": (SlotPair, lambda v: (v.first, v.second)),
    "nki_object": (lambda a, b: Weights(first=a, second=b), lambda v: (v.first, v.second)),
    "nested": (
        lambda a, b: Pair([Pair(a)], {"b": SlotPair(b)}),
        lambda v: (v.first[0].first, v.second["b"].first),
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_tensors_inside_other_things(name: str) -> None:
    make, parts = GIVEN[name]

    @nki.jit
    def kernel(given):
        assert type(given) is kind
        first, second = parts(given)
        return down(up(first)), down(up(second))

    given = make(X, X.astype(np.int32))
    kind = type(given)
    for _ in range(2):
        first, second = kernel(given)
        np.testing.assert_array_equal(first, X)
        np.testing.assert_array_equal(second, X.astype(np.int32))
    assert len(kernel._cache) == 1
    assert all(isinstance(part, np.ndarray) for part in parts(given))  # the caller's object is as it was


def test_names_of_nested_tensors() -> None:
    arguments = collect({"a": X, "b": [X, {"c": X}], "d": Pair(X)})
    assert [leaf.name for leaf in arguments.leaves] == ["a", "b_0", "b_1_c", "d_first"]


def test_equal_names_are_told_apart() -> None:
    @nki.jit
    def kernel(a, a_0):
        return down(up(a[0])), down(up(a_0))

    first, second = kernel([X], X + 1)
    np.testing.assert_array_equal(second - first, np.ones_like(X))


def test_a_container_is_not_changed_by_the_kernel() -> None:
    @nki.jit
    def kernel(tensors):
        tensors.append(None)
        return down(up(tensors[0]))

    tensors = [X]
    kernel(tensors)
    assert len(tensors) == 1


class ForeignArray:
    """What a JAX array looks like from outside: immutable, convertible."""

    __module__ = "jaxlib.xla_extension"

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.dtype = array.dtype
        self.shape = array.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._array


def test_foreign_arrays_are_taken_as_arrays() -> None:
    found = through(ForeignArray(X))
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, X)


def test_foreign_arrays_cannot_be_written() -> None:
    with pytest.raises(errors.ArgumentError, match="immutable"):
        zeroed(ForeignArray(X.copy()))
