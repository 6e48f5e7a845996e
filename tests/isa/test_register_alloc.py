"""register_alloc: the function form, its value, its limits and its cost."""

from __future__ import annotations

import inspect

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.registers import VirtualRegister
from nki.target import get_target
from tests.isa.dynamic import everywhere, one
from tests.isa.tiles import sbuf, staged, store


def kernel_with(value):
    @nki.jit
    def kernel(x):
        register = nisa.register_alloc(value)
        assert isinstance(register, VirtualRegister)
        tile = sbuf((1, 1), nl.int32)
        nisa.register_store(tile, register)
        return store(tile)

    return kernel


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (5, 5), (-5, -5), (2**31, -(2**31)), (2**32 - 1, -1)]
)
def test_rule_124_values(value, expected):
    assert everywhere(kernel_with(value), one(0)).tolist() == [[expected]]


def test_without_a_value_it_must_be_written_first():
    with pytest.raises(errors.UninitializedReadError, match="register"):
        nki.simulate(kernel_with(None))(one(0))


def test_signature_and_name():
    assert list(inspect.signature(nisa.register_alloc).parameters) == ["x"]

    @nki.jit
    def kernel(x):
        count = nisa.register_alloc(x=3)
        tile = sbuf((1, 1), nl.int32)
        nisa.register_store(tile, count)
        return store(tile)

    assert [register.name for register in kernel.ir(one(0)).registers] == ["count"]


@pytest.mark.parametrize("value", [2**32, -(2**31) - 1])
def test_too_wide(value):
    with pytest.raises(errors.LimitError, match="32"):
        nki.simulate(kernel_with(value))(one(0))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: nisa.register_alloc(1.5), "integer"),
        (lambda: nisa.register_alloc(1, 2), "register_alloc"),
        (lambda: nisa.register_alloc(dst=3), "makes its register itself"),
    ],
)
def test_wrong_arguments(call, word):
    @nki.jit
    def kernel(x):
        call()
        return x

    with pytest.raises(errors.ArgumentError, match=word):
        nki.simulate(kernel)(one(0))


def test_outside_a_kernel():
    with pytest.raises(errors.OutsideKernelError, match="register_alloc"):
        nisa.register_alloc()


def test_cost_is_that_of_a_sequencer_step():
    (node,) = staged(kernel_with(1), "register_alloc", one(0))
    target = get_target("trn2")
    (phase,) = node.cost(target)
    assert target.cycles_ps(node.engine, phase.interval) >= target.register_move_ps
