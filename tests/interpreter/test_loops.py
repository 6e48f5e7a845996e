"""Loops on the device give what the same loop gives when Python unrolls it, planned and eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.language.both import add, both, f32, number, register_of, tile
from tests.language.run import down, up

Step = tuple[str, int, int]
STEPS = st.tuples(
    st.sampled_from(["add", "copy", "fresh", "narrow", "product"]), st.integers(0, 2), st.integers(0, 2)
)
NESTS = st.recursive(
    st.lists(STEPS, max_size=4), lambda inner: st.tuples(st.integers(0, 3), inner), max_leaves=3
)


def perform(step: Step, tiles: list[Any], halves: list[Any]) -> None:
    """One instruction or two on the tiles."""
    kind, a, b = step
    if kind == "add":
        add(tiles[a], 1.0)
    elif kind == "copy":
        nisa.tensor_copy(dst=tiles[a], src=tiles[b])
    elif kind == "narrow":
        nisa.tensor_tensor(dst=tiles[a], data1=halves[b], data2=halves[a], op=nl.add)
    elif kind == "product":
        nisa.tensor_tensor(dst=halves[a], data1=tiles[a], data2=halves[b], op=nl.multiply)
    else:
        new = nl.ndarray(tiles[a].shape, nl.float32)
        nisa.tensor_copy(dst=new, src=tiles[a])
        nisa.tensor_tensor(dst=tiles[b], data1=new, data2=tiles[b], op=nl.maximum)


def nest_kernel(nests: list[Any], loop: Callable[[Any, int], Any], registers: bool) -> Any:
    """A kernel that runs nests of loops: a nest is a list of steps, or (passes, place of the register, nest inside)."""

    @nki.jit
    def kernel(x, counts):
        tiles = [up(x), tile((4, 8), 2.0), tile((4, 8), -3.0)]
        halves = [nl.copy(t, dtype=nl.bfloat16) for t in tiles]

        def run(nest: Any) -> None:
            if isinstance(nest, list):
                for step in nest:
                    perform(step, tiles, halves)
                return
            passes, place, inner = nest
            bound = register_of(counts[place : place + 1, :]) if registers else passes
            for _ in loop(bound, passes):
                run(inner)
                add(tiles[0], 0.5)

        for nest in nests:
            run(nest)
        return tuple(down(t) for t in (*tiles, *halves))

    return kernel


def numbered(nest: Any, counts: list[int]) -> Any:
    """The nest with the place of each number of passes in `counts`, where it is appended."""
    if isinstance(nest, list):
        return nest
    counts.append(nest[0])
    return nest[0], len(counts) - 1, numbered(nest[1], counts)


@given(nests=st.lists(NESTS, min_size=1, max_size=3), registers=st.booleans())
def test_a_loop_on_the_device_is_the_loop_unrolled(nests: list[Any], registers: bool) -> None:
    x = np.arange(32, dtype=f32).reshape(4, 8) / 7
    passes = [0]
    nests = [numbered(nest, passes) for nest in nests]
    counts = np.array(passes, np.int32)[:, None]
    device = nest_kernel(nests, lambda bound, _: nl.dynamic_range(bound), registers)
    unrolled = nest_kernel(nests, lambda _, passes: range(passes), False)
    found = both(device, x, counts)
    for one, other in zip(found, nki.simulate(unrolled, target="trn2")(x, counts)):
        assert one.tobytes() == other.tobytes()


def test_two_runs_of_a_plan_do_not_see_each_other() -> None:
    @nki.jit
    def kernel(n):
        t, r = tile((1, 1), 0.0), register_of(n)
        for _ in nl.dynamic_range(r):
            add(t, 1.0)
        return down(t)

    run = nki.simulate(kernel, target="trn2")
    assert [int(run(number(n))[0, 0]) for n in (3, 0, 2, 5)] == [3, 0, 2, 5]


def test_tiles_of_a_body_have_one_address() -> None:
    @nki.jit
    def kernel(x):
        total = tile(x.shape, 0.0)
        for _ in nl.dynamic_range(1000):
            big = nl.ndarray((x.shape[0], 40_000), nl.float32)
            nisa.memset(dst=big, value=1.0)
            nisa.tensor_tensor(dst=total, data1=total, data2=big[:, 0:8], op=nl.add)
        return down(total)

    x = np.zeros((2, 8), f32)
    assert (nki.simulate(kernel, target="trn2")(x) == 1000).all()


def test_a_tile_from_outside_keeps_its_bytes_during_all_passes() -> None:
    """`late` is touched at the end of the body only; what the body allocates must not take its place."""

    @nki.jit
    def kernel(x):
        first, total = up(x), tile(x.shape, 0.0)
        for _ in nl.dynamic_range(3):
            nisa.tensor_tensor(dst=total, data1=total, data2=first, op=nl.add)
            other = tile(x.shape, 100.0)
            nisa.tensor_copy(dst=other, src=other)
        return down(total)

    x = np.arange(8, dtype=f32).reshape(2, 4)
    np.testing.assert_array_equal(both(kernel, x), 3 * x)


def test_what_a_loop_that_does_not_run_leaves_unwritten_is_poison() -> None:
    @nki.jit
    def kernel(n, x):
        r, t = register_of(n), nl.ndarray((2, 4), nl.float32)
        out = nl.ndarray((4, 2), nl.float32, nl.shared_hbm)
        for i in nl.dynamic_range(r):
            nisa.memset(dst=t, value=1.0)
            nisa.dma_copy(dst=out.ap([[2, 1], [1, 2]], scalar_offset=i, indirect_dim=0), src=x)
        return down(t), out

    x = np.ones((1, 2), f32)
    t, out = both(kernel, number(0), x, sanitize=False)
    assert np.isnan(t).all() and np.isnan(out).all()
    t, out = both(kernel, number(3), x, sanitize=False)
    assert (t == 1).all() and (out[:3] == 1).all() and np.isnan(out[3]).all()


def test_reading_what_only_an_earlier_pass_has_written_is_an_error() -> None:
    @nki.jit
    def kernel(n):
        t, out = nl.ndarray((1, 4), nl.float32), tile((1, 4), 0.0)
        for _ in nl.dynamic_range(register_of(n)):
            nisa.tensor_copy(dst=out, src=t)
            nisa.memset(dst=t, value=1.0)
        return down(out)

    with pytest.raises(errors.UninitializedReadError):
        nki.simulate(kernel, target="trn2")(number(2))


def test_a_register_that_nothing_has_written_is_an_error() -> None:
    from nki.ir.parser import parse_program

    @nki.jit
    def kernel(x):
        reg = nisa.register_alloc(2)
        t = up(x)
        for _ in nl.dynamic_range(reg):
            add(t, 1.0)
        return down(t)

    text = str(kernel.ir(np.zeros((1, 1), f32), target="trn2"))
    lines = [line for line in text.split("\n") if "register_alloc" not in line]
    from nki.passes import prepare

    with pytest.raises(errors.UninitializedReadError, match="which nothing has written"):
        prepare(parse_program("\n".join(lines)))


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_accumulate_none_overwrites_once_and_adds_afterwards(passes: int) -> None:
    @nki.jit
    def kernel(n, a, b):
        r, left, right = register_of(n), up(a), up(b)
        acc = nl.ndarray((4, 6), nl.float32, nl.psum)
        nisa.memset(dst=acc, value=7.0)
        for _ in nl.dynamic_range(r):
            nisa.nc_matmul(dst=acc[:, 0:4], stationary=left, moving=right[:, 0:4])
            nisa.nc_matmul(dst=acc[:, 2:6], stationary=left, moving=right[:, 2:6])
        nisa.nc_matmul(dst=acc[:, 0:1], stationary=left, moving=right[:, 0:1])
        out = nl.ndarray((4, 6), nl.float32)
        nisa.tensor_copy(dst=out, src=acc)
        return down(out)

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (4, n)).astype(f32) for n in (4, 6))
    found = both(kernel, number(passes), a, b)
    product = a.T @ b
    times = passes * np.array([1, 1, 2, 2, 1, 1]) + np.array([1, 0, 0, 0, 0, 0])
    expected = np.where(times > 0, product * times, 7.0)
    np.testing.assert_array_equal(found, expected)


def test_another_engine_ends_the_group_in_every_pass() -> None:
    @nki.jit
    def kernel(x):
        left, total = up(x), tile((4, 4), 0.0)
        acc = nl.ndarray((4, 4), nl.float32, nl.psum)
        for _ in nl.dynamic_range(3):
            nisa.memset(dst=acc[0:2, :], value=5.0)
            nisa.nc_matmul(dst=acc, stationary=left, moving=left)
            nisa.tensor_tensor(dst=total, data1=acc, data2=total, op=nl.add)
        return down(total)

    x = np.arange(16, dtype=f32).reshape(4, 4)
    once = x.T @ x
    expected = np.concatenate([3 * once[:2], 6 * once[2:]])
    np.testing.assert_array_equal(both(kernel, x), expected)


def test_a_transpose_must_say_whether_it_adds() -> None:
    @nki.jit
    def kernel(x):
        left, eye = up(x), up(x)
        acc = nl.ndarray((4, 4), nl.float32, nl.psum)
        for _ in nl.dynamic_range(2):
            nisa.nc_matmul(dst=acc, stationary=left, moving=eye, is_transpose=True)
        return down(nl.copy(acc))

    with pytest.raises(errors.RuleError, match="depends on the pass"):
        nki.simulate(kernel, target="trn2")(np.eye(4, dtype=f32))


def test_a_failing_pass_names_the_line_and_changes_nothing() -> None:
    @nki.jit
    def kernel(n, x):
        r = register_of(n)
        for i in nl.dynamic_range(r):
            nisa.dma_copy(dst=x.ap([[4, 1], [1, 4]], scalar_offset=i, indirect_dim=0), src=tile((1, 4), 1.0))
        return x

    x = np.zeros((3, 4), f32)
    with pytest.raises(errors.DynamicBoundsError, match="index 3") as caught:
        nki.simulate(kernel, target="trn2")(number(5), x)
    assert (x == 0).all() and __file__ in str(caught.value)
    both(kernel, number(3), x)
