"""register_move: numbers and registers as sources, frozen destinations, and what is refused."""

from __future__ import annotations

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir import builder
from nki.registers import VirtualRegister
from tests.isa.dynamic import everywhere, one
from tests.isa.tiles import sbuf, store


def test_numbers_and_registers():
    @nki.jit
    def kernel(n):
        a, b = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_load(a, n)
        nisa.register_move(b, a)
        nisa.register_move(dst=a, src=-7)
        tiles = [sbuf((1, 1), nl.int32) for _ in range(2)]
        nisa.register_store(tiles[0], a)
        nisa.register_store(tiles[1], b)
        return store(tiles[0]), store(tiles[1])

    for value in (3, -3):
        assert [x.tolist() for x in everywhere(kernel, one(value))] == [[[-7]], [[value]]]


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda r, t: nisa.register_move(3, r), errors.ArgumentError, "must be a register"),
        (lambda r, t: nisa.register_move(r, 1.5), errors.ArgumentError, "register or an integer"),
        (lambda r, t: nisa.register_move(r, t), errors.ArgumentError, "register or an integer"),
        (lambda r, t: nisa.register_move(r, 2**33), errors.LimitError, "32 bits"),
        (lambda r, t: nisa.register_move(r, imm=3), errors.UnknownKeywordError, "imm"),
    ],
)
def test_refused(call, error, word):
    @nki.jit
    def kernel(n):
        call(nisa.register_alloc(), sbuf((1, 1), nl.int32))
        return n

    with pytest.raises(error, match=word):
        nki.simulate(kernel)(one(0))


def test_rule_126_counters_are_frozen():
    @nki.jit
    def kernel(n):
        counter = VirtualRegister(builder.current().register("i", frozen=True))
        nisa.register_move(counter, 3)
        return n

    with pytest.raises(AssertionError, match="counter of a loop") as caught:
        nki.simulate(kernel)(one(0))
    assert isinstance(caught.value, errors.FrozenRegisterError)
