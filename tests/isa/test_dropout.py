"""`nisa.dropout`: which elements go, how many, and that the others stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.effects import STATES, VECTOR_PRNG
from tests.isa.generators import side_by_side, xorshift
from tests.isa.single import Out, Psum, bf16, diagnose, f32, interval, normal, run
from tests.isa.tiles import load, sbuf, store

X = np.abs(normal((128, 512))) + f32(1)


def dropped(prob: object, x: np.ndarray = X, target: str = "trn2") -> np.ndarray:
    return run(nisa.dropout, target=target, dst=Out(x.shape, x.dtype), data=x, prob=prob)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_rule_122_ends(target: str) -> None:
    """0 keeps all, 1 drops all."""
    assert np.array_equal(dropped(0.0, target=target), X)
    assert not dropped(1.0, target=target).any()


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("prob", [0.2, 0.5, 0.9])
def test_rule_122_share_and_no_scaling(target: str, prob: float) -> None:
    found = dropped(prob, target=target)
    assert np.array_equal(found[found != 0], X[found != 0])
    assert abs((found == 0).mean() - prob) < 0.01
    assert abs((found == 0).mean(axis=1) - prob).max() < 0.12


def test_rule_121_the_numbers_are_those_of_the_generator() -> None:
    x = np.ones((2, 9), f32)
    for target, words in (
        ("trn2", lambda s: xorshift(s[0], 9)[1]),
        ("trn3", lambda s: side_by_side(s, 9)[1]),
    ):
        states = STATES[VECTOR_PRNG].initial(128)[:2].tolist()
        golden = [[float((word >> 8) / 2**24 >= 0.5) for word in words(state)] for state in states]
        assert dropped(0.5, x, target).tolist() == golden


def test_rule_122_one_probability_per_partition() -> None:
    prob = np.linspace(0, 1, 128, dtype=f32)[:, None]
    share = (dropped(prob) == 0).mean(axis=1)
    assert share[0] == 0 and share[-1] == 1 and abs(share - prob[:, 0]).max() < 0.12


def test_rule_122_beyond_one_drops_all() -> None:
    prob = np.array([[0.0], [3.0], [100.0], [0.0]], f32)
    found = dropped(prob, X[:4])
    assert np.array_equal(found[[0, 3]], X[[0, 3]]) and not found[1:3].any()
    assert not dropped(7.0, X[:4]).any()
    found = diagnose(nisa.dropout, dst=Out((2, 4)), data=np.ones((2, 4), f32), prob=20.0)
    assert len(found) == 1 and "not a percentage" in found[0].message


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bf16, np.float16])
def test_bits_are_kept(dtype: type) -> None:
    size = np.dtype(dtype).itemsize
    x = np.random.default_rng(0).integers(0, 256, (8, 16 * size), np.uint8).view(dtype)
    found, bits = dropped(0.5, x).view(f"u{size}"), x.view(f"u{size}")
    assert np.isin(found, [0]).any() and ((found == bits) | (found == 0)).all()


def test_dtypes() -> None:
    """Rule 176: prob is float32 for integers, any float type else; dst has the dtype of data."""
    narrow = np.full((2, 1), 0.5, bf16)
    dropped(narrow, np.ones((2, 4), f32))
    with pytest.raises(errors.OperandDtypeError, match="`prob` is float32 for integer data"):
        dropped(narrow, np.ones((2, 4), np.int32))
    with pytest.raises(errors.OperandDtypeError, match="`prob` cannot be int32"):
        dropped(np.ones((2, 1), np.int32), np.ones((2, 4), f32))
    with pytest.raises(errors.OperandDtypeError, match="`dst` is bfloat16, but `data` is float32"):
        run(nisa.dropout, dst=Out((2, 4), nl.bfloat16), data=np.ones((2, 4), f32), prob=0.5)
    with pytest.raises(errors.OperandShapeError, match="`prob` must have 1"):
        dropped(np.ones((2, 4), f32), np.ones((2, 4), f32))


def test_every_call_draws_anew_and_every_run_the_same() -> None:
    @nki.jit
    def kernel(x):
        tile, a, b = load(x), sbuf(x.shape), sbuf(x.shape)
        nisa.dropout(a, tile, 0.5)
        nisa.dropout(b, tile, 0.5)
        return store(a), store(b)

    a, b = nki.simulate(kernel, target="trn2")(X)
    c, d = nki.simulate(kernel, target="trn2", eager=True)(X)
    assert not np.array_equal(a, b) and np.array_equal(a, c) and np.array_equal(b, d)


def test_in_place_shapes_psum_and_cost() -> None:
    @nki.jit
    def kernel(x):
        tile = load(x)
        nisa.dropout(tile, tile, 0.5)
        return store(tile)

    x = X[:4, :24]
    golden = dropped(0.5, x)
    assert np.array_equal(nki.simulate(kernel, target="trn2")(x), golden)
    assert np.array_equal(dropped(0.5, x.reshape(4, 4, 6)).reshape(4, 24), golden)
    found = run(nisa.dropout, target="trn2", dst=Out((4, 24), psum=True), data=Psum(x), prob=0.5)
    assert np.array_equal(found, golden)
    assert interval(nisa.dropout, "trn2", dst=Out((4, 500)), data=X[:4, :500], prob=0.1) == 500
