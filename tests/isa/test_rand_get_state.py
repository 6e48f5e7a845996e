"""`nisa.rand_get_state` against the state that the recurrences leave behind."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.effects import GPSIMD_PRNG, STATES, VECTOR_PRNG
from tests.isa.generators import side_by_side
from tests.isa.single import Out, interval, run
from tests.isa.tiles import sbuf, store

CASES = [
    ("trn2", nisa.engine.gpsimd, GPSIMD_PRNG, 6),
    ("trn3", nisa.engine.gpsimd, GPSIMD_PRNG, 6),
    ("trn3", nisa.engine.vector, VECTOR_PRNG, 24),
]


@pytest.mark.parametrize(("target", "engine", "name", "size"), CASES)
def test_rule_121_state_before_and_after(target: str, engine: object, name: str, size: int) -> None:
    @nki.jit
    def kernel(x):
        before, after, words = (
            sbuf((8, size), nl.uint32),
            sbuf((8, size), nl.uint32),
            sbuf((8, 13), nl.uint32),
        )
        nisa.rand_get_state(before, engine=engine)
        nisa.rng(words, engine=engine)
        nisa.rand_get_state(after, engine=engine)
        return store(before), store(after)

    before, after = nki.simulate(kernel, target=target)(np.zeros((1, 1), np.float32))
    assert np.array_equal(before, STATES[name].initial(128)[:8])
    assert after.tolist() == [side_by_side(state, 13)[0] for state in before.tolist()]


def test_default_engine_is_gpsimd() -> None:
    assert nisa.rand_get_state.__signature__.parameters["engine"].default is nisa.engine.gpsimd
    assert run(nisa.rand_get_state, target="trn2", dst=Out((3, 6), nl.uint32)).shape == (3, 6)


def test_the_size_follows_the_engine() -> None:
    """Rule 121: 6 words on GpSimd, 24 on the Vector engine; without a wish the size decides."""
    with pytest.raises(errors.EngineError, match="6 words in each partition, the tile 24"):
        run(nisa.rand_get_state, target="trn3", dst=Out((3, 24), nl.uint32))
    with pytest.raises(errors.EngineError, match="24 words in each partition, the tile 6"):
        run(nisa.rand_get_state, target="trn3", dst=Out((3, 6), nl.uint32), engine=nisa.engine.vector)
    for size in (6, 24):
        run(nisa.rand_get_state, target="trn3", dst=Out((3, size), nl.uint32), engine=nisa.engine.unknown)
    with pytest.raises(errors.EngineError, match="no engine can run this"):
        run(nisa.rand_get_state, target="trn3", dst=Out((3, 5), nl.uint32), engine=nisa.engine.unknown)


def test_generations_and_memories() -> None:
    with pytest.raises(errors.TargetError, match="trn2 and later"):
        run(nisa.rand_get_state, target="trn1", dst=Out((3, 6), nl.uint32))
    with pytest.raises(errors.EngineError, match="out of reach on trn2"):
        run(nisa.rand_get_state, target="trn2", dst=Out((3, 24), nl.uint32), engine=nisa.engine.vector)
    with pytest.raises(errors.EngineError, match="GpSimd cannot reach PSUM"):
        run(nisa.rand_get_state, target="trn3", dst=Out((3, 6), nl.uint32, psum=True))
    run(nisa.rand_get_state, target="trn3", dst=Out((3, 24), nl.uint32, psum=True), engine=nisa.engine.vector)
    with pytest.raises(errors.OperandDtypeError, match="`dst` cannot be int32"):
        run(nisa.rand_get_state, target="trn2", dst=Out((3, 6), nl.int32))


def test_cost() -> None:
    dst = Out((3, 24), nl.uint32)
    assert interval(nisa.rand_get_state, "trn3", dst=dst, engine=nisa.engine.vector) == 64
    assert interval(nisa.rand_get_state, "trn3", dst=Out((3, 6), nl.uint32)) == 156
