"""VirtualRegister: what it is, and everything in Python that would need its value (semantics rules 124, 125)."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.control import Register
from nki.registers import VirtualRegister
from tests.isa.dynamic import everywhere, one
from tests.isa.tiles import load, sbuf, store

REGISTER = VirtualRegister(Register("n"))


@pytest.mark.parametrize(
    ("use", "word"),
    [
        (bool, "fori_loop"),
        (int, "fori_loop"),
        (float, "fori_loop"),
        (range, "fori_loop"),
        (len, "fori_loop"),
        (list, "fori_loop"),
        (operator.index, "scalar_offset"),
        (lambda r: r < 3, "scalar_offset"),
        (lambda r: r >= 3, "branch"),
        (lambda r: r == 0, "branch"),
        (lambda r: r != 0, "branch"),
        (lambda r: operator.gt(5, r), "branch"),
    ],
)
def test_rule_125_no_value_in_python(use, word):
    with pytest.raises(TypeError) as caught:
        use(REGISTER)
    assert isinstance(caught.value, errors.TruthValueError)
    assert (
        word in str(caught.value) and "register" in str(caught.value) and caught.value.span.file == __file__
    )


@pytest.mark.parametrize(
    "use", [lambda r: r + 1, lambda r: 2 * r, lambda r: r // 4, lambda r: -r, lambda r: ~r]
)
def test_no_arithmetic(use):
    with pytest.raises(errors.OperatorError, match="register_store"):
        use(REGISTER)


def test_identity():
    assert VirtualRegister(Register("n")) == REGISTER and hash(VirtualRegister(Register("n"))) == hash(
        REGISTER
    )
    assert VirtualRegister(Register("m")) != REGISTER and REGISTER != None and REGISTER != "n"  # noqa: E711
    assert not REGISTER.frozen and VirtualRegister(Register("i", frozen=True)).frozen
    assert repr(REGISTER) == "<VirtualRegister $n>" and isinstance(REGISTER, nisa.VirtualRegister)
    with pytest.raises(errors.ArgumentError, match="register_alloc"):
        VirtualRegister(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("eager", [False, True])
def test_case_59_branch_on_a_register(eager):
    @nki.jit
    def kernel(n):
        register = nisa.register_alloc()
        nisa.register_load(register, n)
        if register == 0:
            pass
        return n

    with pytest.raises(TypeError, match="scalar_offset") as caught:
        nki.simulate(kernel, eager=eager)(one(0))
    assert "test_registers.py" in str(caught.value)


def test_rule_124_values_move_between_registers_and_memory():
    @nki.jit
    def kernel(n):
        first, second, third = nisa.register_alloc(-5), nisa.register_alloc(), nisa.register_alloc(7)
        nisa.register_load(second, n)
        nisa.register_move(third, second)
        nisa.register_move(second, 0xFFFFFFFF)
        tiles = [sbuf((1, 1), nl.int32) for _ in range(3)]
        for tile, register in zip(tiles, (first, second, third)):
            nisa.register_store(tile, register)
        out = nl.ndarray((1,), dtype=nl.int32, buffer=nl.shared_hbm)
        nisa.register_store(dst=out, src=third)
        return (*(store(tile) for tile in tiles), out)

    for value in (9, -1, 2**31 - 1):
        found = everywhere(kernel, np.array([value], np.int32))
        assert [int(x.flat[0]) for x in found] == [-5, -1, value, value]


def test_a_tile_in_sbuf_is_loaded_when_the_instruction_runs():
    @nki.jit
    def kernel(n):
        register, tile = nisa.register_alloc(), load(n)
        nisa.register_load(register, tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1)
        nisa.register_store(tile, register)
        return store(tile)

    assert everywhere(kernel, one(41)).tolist() == [[41]]
