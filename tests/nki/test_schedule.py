"""Explicit orders: `with_schedule` by name, `depends_on` by handle; they change the order, never a value (rule 149)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.language.both import add, both, f32, tile
from tests.language.run import down, up

X = np.arange(8, dtype=f32).reshape(2, 4)


@nki.jit
def named(x):
    t = up(x)
    a, b, c = (nl.ndarray(x.shape, nl.float32) for _ in range(3))
    nisa.reciprocal(dst=a, data=t, name="recip")
    nisa.tensor_scalar(dst=b, data=t, op0=nl.add, operand0=1.0, name="plus1")
    nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.add, name="sum")
    return down(c)


def order(program: Any) -> list[str]:
    return [instruction.name for instruction in program.instructions() if instruction.name]


def test_an_edge_by_name_orders() -> None:
    for producers in ("recip", ["recip"], ("recip",)):
        scheduled = named.with_schedule([("plus1", producers)])
        program = scheduled.ir(X + 1, target="trn2")
        assert "fixed_order" in program.flags and " after=[@1]" in str(program)
        np.testing.assert_array_equal(both(scheduled, X + 1), both(named, X + 1))
    assert "fixed_order" not in named.ir(X + 1, target="trn2").flags


def test_an_edge_against_the_order_of_the_text_moves_the_producer() -> None:
    scheduled = named.with_schedule([("recip", "plus1")])
    assert order(scheduled.ir(X + 1, target="trn2")) == ["plus1", "recip", "sum"]
    np.testing.assert_array_equal(both(scheduled, X + 1), both(named, X + 1))
    assert nki.profile(scheduled, target="trn2")(X + 1).timeline.schedule == "program"


def test_what_the_producer_needs_moves_along() -> None:
    @nki.jit
    def kernel(x):
        first, second = up(x), nl.ndarray(x.shape, nl.float32)
        nisa.tensor_scalar(dst=first, data=first, op0=nl.add, operand0=1.0, name="act0")
        nisa.dma_copy(dst=second, src=x, name="load1")
        nisa.tensor_scalar(dst=second, data=second, op0=nl.add, operand0=2.0, name="act1")
        return down(first), down(second)

    scheduled = kernel.with_schedule([("act0", ["act1"])])
    assert order(scheduled.ir(X, target="trn2")) == ["load1", "act1", "act0"]
    for one, other in zip(both(scheduled, X), both(kernel, X)):
        np.testing.assert_array_equal(one, other)


def test_a_schedule_that_the_data_forbid() -> None:
    with pytest.raises(errors.KernelError, match="which needs what it does"):
        named.with_schedule([("recip", "sum")]).ir(X, target="trn2")
    with pytest.raises(errors.KernelError, match="which needs what it does"):
        named.with_schedule([("recip", "plus1"), ("plus1", "recip")]).ir(X, target="trn2")


def test_names_that_do_not_exist() -> None:
    with pytest.raises(errors.ArgumentError, match="no instruction of named is called `recpi`") as caught:
        named.with_schedule([("plus1", "recpi")]).ir(X, target="trn2")
    assert caught.value.allowed == "'recip', 'plus1', 'sum'" and "'recip'" in str(caught.value.remedy)
    assert named.with_schedule([("x", "y")]).check(X, target="trn2")[0].severity == "error"


def test_a_name_that_several_instructions_have() -> None:
    @nki.jit
    def kernel(x):
        t = up(x)
        for _ in range(2):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0, name="step")
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0, name="last")
        return down(t)

    with pytest.raises(errors.ArgumentError, match="2 instructions are called `step`"):
        kernel.with_schedule([("last", "step")])(X)


@pytest.mark.parametrize("edges", [[("a",)], [("a", 3)], [(1, "a")], "ab", 5, [("a", [2])]])
def test_edges_that_are_no_pairs_of_names(edges: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="pairs of names"):
        named.with_schedule(edges)


def test_depends_on_moves_too_and_chains() -> None:
    @nki.jit
    def kernel(x):
        t, u = up(x), up(x)
        first = nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0, name="first")
        second = nisa.tensor_scalar(dst=u, data=u, op0=nl.add, operand0=1.0, name="second")
        assert first.depends_on(second) is first
        return down(t), down(u)

    program = kernel.ir(X, target="trn2")
    assert order(program) == ["second", "first"] and "fixed_order" in program.flags
    for found in both(kernel, X):
        np.testing.assert_array_equal(found, X + 1)


@pytest.mark.parametrize("eager", [False, True])
def test_edges_do_not_lead_into_loops_or_out_of_them(eager: bool) -> None:
    handles: list[Any] = []

    def body(t: Any) -> None:
        handles.append(nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0))

    @nki.jit
    def after_it(x):
        t = up(x)
        for _ in nl.dynamic_range(2):
            body(t)
        add(t, 1.0)
        nisa.tensor_copy(dst=t, src=t).depends_on(handles[-1])
        return down(t)

    @nki.jit
    def into_it(x):
        t, u = up(x), tile(x.shape, 1.0)
        before = nisa.tensor_copy(dst=u, src=u)
        for _ in nl.dynamic_range(2):
            body(t)
            handles[-1].depends_on(before)
        return down(t)

    with pytest.raises(errors.KernelError, match="body of another loop"):
        nki.simulate(after_it, target="trn2", eager=eager)(X)
    np.testing.assert_array_equal(nki.simulate(into_it, target="trn2", eager=eager)(X), X + 2)


def test_methods_and_launches_keep_the_schedule() -> None:
    scheduled = named.with_schedule([("plus1", "recip")])
    assert "fixed_order" in scheduled[1].ir(X + 1, target="trn2").flags
    both_edges = scheduled.with_schedule([("sum", "plus1")])
    assert str(both_edges.ir(X + 1, target="trn2")).count("after=") == 2
