"""Calling kernels: what is cached, what is copied back, what may be a kernel, and several threads at once."""

from __future__ import annotations

import copy
import enum
import functools
import pickle
import sys
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.builder import current
from nki.jit import Kernel, Options

f32 = np.float32
X = np.arange(8, dtype=f32).reshape(2, 4)
staged: list[str] = []


def up(source: Any) -> Any:
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def down(tile: Any) -> Any:
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=tile)
    return result


def times(x: Any, factor: float) -> Any:
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
    return kernel.compiled(Options(), args, {})


# --- the cache ----------------------------------------------------------------------------------------------


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


# --- arguments and results ----------------------------------------------------------------------------------


@nki.jit
def bump(x, y):
    for tensor in (x, y):
        tile = up(tensor)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=tensor, src=tile)
    return y, down(up(x)), x


@pytest.mark.parametrize("eager", [False, True])
def test_mutated_arguments_come_back_as_themselves(eager: bool) -> None:
    x, y = X.copy(), np.asfortranarray(X)
    first, second, third = nki.simulate(bump, eager=eager)(x, y)
    assert first is y and third is x
    for array in (x, y, second):
        np.testing.assert_array_equal(array, X + 1)
    assert not np.shares_memory(second, x)


@pytest.mark.parametrize("eager", [False, True])
def test_views_of_the_caller_are_updated_in_place(eager: bool) -> None:
    base = np.zeros((4, 8), f32)
    nki.simulate(bump, eager=eager)(base[::2, ::2], base[1::2, 1::2].T[::-1])
    assert base.sum() == 16
    assert base[::2, ::2].all() and base[1::2, 1::2].all()


@pytest.mark.parametrize("eager", [False, True])
def test_failure_changes_nothing(eager: bool) -> None:
    @nki.jit
    def kernel(x):
        nisa.dma_copy(dst=x, src=nl.zeros(x.shape, dtype=x.dtype, buffer=nl.sbuf))
        raise ValueError("after the write")

    x = X.copy()
    with pytest.raises(ValueError, match="after the write"):
        nki.simulate(kernel, eager=eager)(x)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("eager", [False, True])
def test_what_cannot_be_written_back_is_told_before_anything_is(eager: bool) -> None:
    x, y = X.copy(), X.copy()
    y.flags.writeable = False
    with pytest.raises(errors.ArgumentError, match="`y`"):
        nki.simulate(bump, eager=eager)(x, y)
    np.testing.assert_array_equal(x, X)


def test_results_of_two_calls_share_nothing() -> None:
    first = scale(X, 2.0)
    kept = first.copy()
    second = scale(X + 1, 2.0)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    first[...] = 0
    np.testing.assert_array_equal(scale(X, 2.0), kept)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (lambda x: None, type(None)),
        (lambda x: x, np.ndarray),
        (lambda x: (x,), tuple),
        (lambda x: [x, down(up(x))], tuple),
        (lambda x: (), tuple),
    ],
)
@pytest.mark.parametrize("eager", [False, True])
def test_forms_of_results(result: Any, expected: type, eager: bool) -> None:
    def kernel(x):
        return result(x)

    assert type(nki.simulate(kernel, eager=eager)(X)) is expected


@pytest.mark.parametrize("eager", [False, True])
def test_reshaped_result(eager: bool) -> None:
    def kernel(x):
        return down(up(x)).reshape((4, 2))

    np.testing.assert_array_equal(nki.simulate(kernel, eager=eager)(X), X.reshape(4, 2))


def test_one_output_under_two_shapes_is_refused() -> None:
    def kernel(x):
        result = down(up(x))
        return result, result.reshape((4, 2))

    with pytest.raises(errors.ReturnError, match="another shape"):
        nki.simulate(kernel)(X)


# --- what may be a kernel -----------------------------------------------------------------------------------


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
    assert isinstance(nki.jit(times, mode="auto"), Kernel)
    assert isinstance(nki.jit(debug_kernel=True)(times), Kernel)
    with pytest.raises(errors.UnknownKeywordError):
        nki.jit(times, no_such="thing")


@pytest.mark.parametrize("grid", [0, 2, -1, True, (1, 1), "1", None])
def test_other_grids_are_refused(grid: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="one core"):
        scale[grid]


# --- state --------------------------------------------------------------------------------------------------


def test_nothing_is_left_behind_by_a_failure() -> None:
    fail = True

    @nki.jit
    def kernel(x):
        tile = up(x)
        if fail:
            nisa.tensor_copy(dst=tile, src=tile[:, 0:2])
        return down(tile)

    for _ in range(2):
        with pytest.raises(errors.OperandShapeError):
            kernel(X)
        assert current() is None
    fail = False
    np.testing.assert_array_equal(kernel(X), X)


def test_a_kernel_called_while_another_is_staged_by_another_thread() -> None:
    inside, go_on = threading.Event(), threading.Event()

    @nki.jit
    def waiting(x):
        tile = up(x)
        inside.set()
        assert go_on.wait(10)
        return down(tile)

    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(waiting(X)))
    thread.start()
    assert inside.wait(10)
    np.testing.assert_array_equal(scale(X, 3.0), X * 3)
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(results[0], X)


def test_threads_call_one_kernel_at_once() -> None:
    @nki.jit
    def kernel(x, factor):
        tile = up(x)
        for _ in range(20):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=factor)
        return down(tile)

    wrong: list[Any] = []

    def work(index: int) -> None:
        for turn in range(15):
            x, factor = np.full((8, 16), index * 100 + turn, f32), float(turn % 3)
            if not (kernel(x, factor) == x + 20 * factor).all():
                wrong.append((index, turn))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert programs(kernel) == 3
