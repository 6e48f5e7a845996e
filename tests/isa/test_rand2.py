"""`nisa.rand2`: the words of the generators as numbers of a range."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.effects import STATES, VECTOR_PRNG
from tests.isa.generators import side_by_side
from tests.isa.single import Out, bf16, f32, interval, run
from tests.isa.tiles import load, sbuf, store


def test_rule_121_upper_24_bits_of_the_words() -> None:
    found = run(nisa.rand2, target="trn3", dst=Out((3, 11)), min=0.0, max=1.0)
    states = STATES[VECTOR_PRNG].initial(128)[:3].tolist()
    assert found.tolist() == [[(word >> 8) / 2**24 for word in side_by_side(s, 11)[1]] for s in states]


def test_uniform_in_a_range() -> None:
    found = run(nisa.rand2, target="trn3", dst=Out((128, 512)), min=-2.0, max=6.0)
    assert found.min() >= -2 and found.max() <= 6
    counts, _ = np.histogram(found, bins=16, range=(-2, 6))
    assert abs(counts / counts.mean() - 1).max() < 0.1
    assert abs(found.mean() - 2) < 0.05 and abs(found.var() - 64 / 12) < 0.1


def test_columns() -> None:
    low, high = np.array([[0], [10], [-1]], f32), np.array([[1], [20], [-0.5]], f32)
    found = run(nisa.rand2, target="trn3", dst=Out((3, 100)), min=low, max=high)
    unit = run(nisa.rand2, target="trn3", dst=Out((3, 100)), min=0.0, max=1.0)
    assert np.array_equal(found, unit * (high - low) + low)
    assert (found >= low).all() and (found <= high).all()


@pytest.mark.parametrize("dtype", [nl.bfloat16, nl.float16, nl.float8_e5m2, nl.tfloat32])
def test_one_conversion_at_the_end(dtype: object) -> None:
    wide = run(nisa.rand2, target="trn3", dst=Out((2, 50)), min=0.0, max=8.0)
    found = run(nisa.rand2, target="trn3", dst=Out((2, 50), dtype), min=0.0, max=8.0)
    if dtype == nl.tfloat32:
        assert not (found.view(np.uint32) & 0x1FFF).any() and abs(found - wide).max() <= 2**-9
    else:
        assert np.array_equal(found.astype(f32), wide.astype(found.dtype).astype(f32))


def test_integers_are_rounded() -> None:
    wide = run(nisa.rand2, target="trn3", dst=Out((2, 50)), min=0.0, max=200.0)
    found = run(nisa.rand2, target="trn3", dst=Out((2, 50), nl.uint8), min=0.0, max=200.0)
    assert found.tolist() == [[round(v) for v in row] for row in wide.tolist()]


def test_rule_123_seeded() -> None:
    @nki.jit
    def kernel(seed):
        a, b, tile = sbuf((64, 8)), sbuf((64, 8)), load(seed)
        nisa.set_rng_seed(tile)
        nisa.rand2(a, 0.0, 1.0)
        nisa.set_rng_seed(tile)
        nisa.rand2(b, 0.0, 1.0)
        return store(a), store(b)

    a, b = nki.simulate(kernel, target="trn3")(np.array([[5]], np.int32))
    assert np.array_equal(a, b)


def test_refusals() -> None:
    for target in ("trn1", "trn2"):
        with pytest.raises(errors.TargetError, match="trn3 and later"):
            run(nisa.rand2, target=target, dst=Out((1, 4)), min=0.0, max=1.0)
    with pytest.raises(errors.RuleError, match="`min` is less than `max`"):
        run(nisa.rand2, target="trn3", dst=Out((1, 4)), min=1.0, max=1.0)
    with pytest.raises(errors.OperandDtypeError, match="`dst` cannot be float8_e4m3fn"):
        run(nisa.rand2, target="trn3", dst=Out((1, 4), nl.float8_e4m3fn), min=0.0, max=1.0)
    with pytest.raises(errors.OperandDtypeError, match="`max` cannot be bfloat16"):
        run(nisa.rand2, target="trn3", dst=Out((1, 4)), min=0.0, max=np.ones((1, 1), bf16))


def test_psum_and_cost() -> None:
    run(nisa.rand2, target="trn3", dst=Out((2, 8), psum=True), min=0.0, max=1.0)
    assert interval(nisa.rand2, "trn3", dst=Out((2, 1000)), min=0.0, max=1.0) == 250
