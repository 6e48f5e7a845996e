"""Accumulation groups that only the run knows: products with `accumulate=None` after writes whose place a register or
an index tile decides, in loops on the device, and after writes of only some bytes of an element.

Every kernel runs planned and eagerly, and `Bank` says what must come out: an element is added to if all of its bytes
belong to an open group, else overwritten (semantics rules 60-63).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

import nki
import nki.isa as nisa
import nki.language as nl
from tests.isa.tiles import whole_numbers
from tests.language.both import both, f32, number, register_of, tile
from tests.language.run import down, up

SEVEN = 7.0
DTYPES = {"float32": np.dtype(f32), "bfloat16": np.dtype(ml_dtypes.bfloat16), "uint8": np.dtype(np.uint8)}
# Positive, so that no sum is a negative zero: some steps change single bytes of the sums.
A, B = whole_numbers((3, 4), low=1), whole_numbers((3, 8), low=1, seed=1)


@dataclass(frozen=True)
class Step:
    """A write of columns `start` ... `start + width - 1` of a [4, 8] float32 tensor in PSUM.

    dtype: what the columns are counted in, of a write by another engine; `None` is a product, of the same columns of B.
    accumulate: of a product.
    at: whether the device reads `start` from an argument: from a "register" or from a "tile".
    """

    start: int
    width: int
    dtype: str | None = None
    accumulate: bool | None = None
    at: str = ""


class Bank:
    """What a tensor full of sevens becomes, and for each of its bytes whether a product has written it."""

    def __init__(self) -> None:
        self.values = np.full((4, 8), SEVEN, f32)
        self.open = np.zeros((4, 32), bool)

    def perform(self, step: Step) -> None:
        dtype = DTYPES[step.dtype or "float32"]
        columns = slice(step.start, step.start + step.width)
        flags = self.open[:, step.start * dtype.itemsize : columns.stop * dtype.itemsize]
        if step.dtype:
            self.values.view(dtype)[:, columns] = 1
            flags[...] = False
            return
        product, held = A.T @ B[:, columns], self.values[:, columns]
        adds: Any = step.accumulate
        if adds is None:
            adds = flags.reshape(4, step.width, 4).all(axis=-1)
        held[...] = np.where(adds, held + product, product)
        flags[...] = True


def perform(step: Step, acc: Any, left: Any, right: Any, starts: Any) -> None:
    """One instruction."""
    start: Any = step.start
    if step.at:
        row = starts[start : start + 1, :]
        start = register_of(row) if step.at == "register" else up(row)
    dst = acc.view(step.dtype) if step.dtype else acc
    dst = dst[:, nl.ds(start, step.width)]
    if step.dtype:
        nisa.memset(dst=dst, value=1)
        return
    moving = right[:, step.start : step.start + step.width]
    nisa.nc_matmul(dst=dst, stationary=left, moving=moving, accumulate=step.accumulate)


Node = Any  # a step, or the passes of a loop on the device and the steps of its body


def what_becomes(nodes: list[Node]) -> np.ndarray:
    bank = Bank()
    for node in nodes:
        passes, steps = (1, [node]) if isinstance(node, Step) else node
        for step in steps * passes:
            bank.perform(step)
    return bank.values


def check(*nodes: Node) -> None:
    """Both ways to run give what `Bank` gives. The device reads the passes of loops, and places, from arguments."""

    @nki.jit
    def kernel(a, b, starts, passes):
        left, right = up(a), up(b)
        acc = tile((4, 8), SEVEN, buffer=nl.psum)
        for i, node in enumerate(nodes):
            if isinstance(node, Step):
                perform(node, acc, left, right, starts)
                continue
            for _ in nl.dynamic_range(register_of(passes[i : i + 1, :])):
                for step in node[1]:
                    perform(step, acc, left, right, starts)
        return down(acc)

    starts = np.arange(32, dtype=np.int32)[:, None]
    passes = np.array([[0 if isinstance(node, Step) else node[0]] for node in nodes], np.int32)
    assert both(kernel, A, B, starts, passes).tobytes() == what_becomes(list(nodes)).tobytes()


ALL = Step(0, 8)


# --- the place of a window is decided by the device -----------------------------------------------------------

WRITES = {
    "a product": Step(3, 2, accumulate=False),
    "a product that adds": Step(3, 2, accumulate=True),
    "another engine": Step(3, 2, "float32"),
    "another engine, at index 0": Step(0, 2, "float32"),
    "another engine, half an element": Step(7, 2, "bfloat16"),
}


@pytest.mark.parametrize("at", ["register", "tile"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_somewhere_changes_the_group_there(write: str, at: str) -> None:
    somewhere = replace(WRITES[write], at=at)
    check(somewhere, ALL)
    check(ALL, somewhere, ALL)
    check(Step(2, 3), somewhere, ALL, ALL)


@pytest.mark.parametrize("passes", [0, 1, 3])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_somewhere_in_a_loop(write: str, passes: int) -> None:
    somewhere = replace(WRITES[write], at="register")
    check((passes, [somewhere]), ALL)
    check(ALL, (passes, [somewhere]), ALL)
    check((passes, [ALL, somewhere]), Step(2, 4))


def test_the_counter_of_a_loop_places_windows() -> None:
    @nki.jit
    def kernel(n, a, b):
        left, right = up(a), up(b)
        acc = tile((4, 8), SEVEN, buffer=nl.psum)
        for i in nl.dynamic_range(register_of(n)):
            nisa.nc_matmul(
                dst=acc[:, nl.ds(i, 1)], stationary=left, moving=right[:, nl.ds(i, 1)], accumulate=False
            )
        nisa.nc_matmul(dst=acc, stationary=left, moving=right)
        return down(acc)

    for passes in (0, 1, 5, 8):
        expected = A.T @ B
        expected[:, :passes] *= 2
        np.testing.assert_array_equal(both(kernel, number(passes), A, B), expected)


@pytest.mark.parametrize("by_product", [False, True])
def test_every_element_has_an_offset_of_its_own(by_product: bool) -> None:
    @nki.jit
    def kernel(offsets, a, b):
        left, right = up(a), up(b)
        acc = tile((4, 8), SEVEN, buffer=nl.psum)
        nisa.nc_matmul(dst=acc[:, 0:6], stationary=left, moving=right[:, 0:6])
        scattered = acc.indirect(up(offsets), num_elem=3)
        if by_product:
            nisa.nc_matmul(dst=scattered, stationary=left, moving=right[:, 0:3], accumulate=False)
        else:
            nisa.exponential(dst=scattered, src=tile((4, 3), 0.0))
        nisa.nc_matmul(dst=acc, stationary=left, moving=right)
        return down(acc)

    offsets = np.array([[5], [1], [7], [0]], np.uint32)  # the fourth is not used
    product = A.T @ B
    expected = product * [2, 2, 2, 2, 2, 2, 1, 1]
    expected[:, [5, 1, 7]] = product[:, [5, 1, 7]] + (product[:, 0:3] if by_product else 0)
    np.testing.assert_array_equal(both(kernel, offsets, A, B, target="trn3"), expected)


def test_a_tile_of_a_body_is_new_in_every_pass() -> None:
    @nki.jit
    def kernel(n, start, a, b):
        left, right, total, place = up(a), up(b), tile((4, 8), 0.0), register_of(start)
        for _ in nl.dynamic_range(register_of(n)):
            acc = tile((4, 8), SEVEN, buffer=nl.psum)
            nisa.nc_matmul(
                dst=acc[:, nl.ds(place, 2)], stationary=left, moving=right[:, 3:5], accumulate=False
            )
            nisa.nc_matmul(dst=acc, stationary=left, moving=right)
            nisa.tensor_tensor(dst=total, data1=total, data2=acc, op=nl.add)
        return down(total)

    expected = A.T @ B
    expected[:, 3:5] *= 2
    for passes in (0, 1, 3):
        np.testing.assert_array_equal(both(kernel, number(passes), number(3), A, B), passes * expected)


def test_a_place_outside_is_refused_by_the_write() -> None:
    @nki.jit
    def kernel(start, a, b):
        left, right = up(a), up(b)
        acc = tile((4, 8), SEVEN, buffer=nl.psum)
        nisa.nc_matmul(dst=acc, stationary=left, moving=right)
        nisa.memset(dst=acc[:, nl.ds(register_of(start), 3)], value=1.0)
        nisa.nc_matmul(dst=acc, stationary=left, moving=right)
        return down(acc)

    for eager in (False, True):
        with pytest.raises(nki.errors.DynamicBoundsError, match="memset: index 6"):
            nki.simulate(kernel, eager=eager)(number(6), A, B)
    both(kernel, number(5), A, B)


# --- some bytes of an element ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "uint8"])
def test_bytes_of_another_engine_end_the_group_of_their_element(dtype: str) -> None:
    """Any byte of it: as staged, in a loop, and with the place of the bytes decided by the device."""
    parts = 4 // DTYPES[dtype].itemsize
    for start in range(5 * parts, 6 * parts):
        some = Step(start, 1, dtype)
        check(ALL, some, ALL)
        check((3, [ALL, some, ALL]))
        check((2, [some, ALL]), ALL)
        check(ALL, replace(some, at="register"), ALL)


# --- anything, in any order ------------------------------------------------------------------------------------


@st.composite
def steps(draw: Any) -> Step:
    dtype = draw(st.sampled_from([None, None, *DTYPES]))
    at = draw(st.sampled_from(["", "", "register", "tile"]))
    size = 32 // DTYPES[dtype or "float32"].itemsize
    start = draw(st.integers(0, size - 1))
    width = draw(st.integers(1, size - start))
    accumulate = draw(st.sampled_from([False, True] if at else [None, None, None, False, True]))
    return Step(start, width, dtype, None if dtype else accumulate, at)


@given(
    st.lists(steps() | st.tuples(st.integers(0, 3), st.lists(steps(), min_size=1, max_size=4)), max_size=6)
)
def test_any_sequence_of_writes(nodes: list[Node]) -> None:
    check(*nodes, ALL)


# --- both operands are one tile --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_tile_times_itself_has_the_bits_of_two_tiles(dtype: str) -> None:
    """NaN keeps its sign: NumPy multiplies an array by itself with another routine, which copies one triangle of the
    product into the other."""

    @nki.jit
    def kernel(x):
        one, other = up(x), up(x)
        found = []
        for moving in (one, other):
            p = nl.ndarray((16, 16), nl.float32, nl.psum)
            nisa.nc_matmul(dst=p, stationary=one, moving=moving)
            found.append(down(p))
        return tuple(found)

    x = np.random.default_rng(0).standard_normal((32, 16)).astype(dtype)
    x[3, 4], x[5, 9], x[7, 9] = np.inf, -np.inf, np.nan
    x[8, 2] = np.copysign(np.nan, -1)
    same, apart = both(kernel, x)
    np.testing.assert_array_equal(same.view(np.uint32), apart.view(np.uint32))
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(same, wide.T @ wide, rtol=1e-5, atol=1e-4)
