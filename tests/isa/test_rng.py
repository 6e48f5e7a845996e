"""`nisa.rng` against the published recurrences, and what is documented about its streams."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.effects import GPSIMD_PRNG, STATES, VECTOR_PRNG
from tests.isa.generators import side_by_side, xorshift
from tests.isa.single import Out, diagnose, interval, run
from tests.isa.tiles import sbuf, store

GPSIMD = nisa.engine.gpsimd
VECTOR = nisa.engine.vector


@nki.jit
def words(x, count, engine):
    tile = sbuf((4, count), nl.uint32)
    nisa.rng(tile, engine=engine)
    return store(tile)


def drawn(target: str, count: int = 10, engine: object = VECTOR) -> np.ndarray:
    return nki.simulate(words, target=target)(np.zeros((1, 1), np.float32), count, engine)


def initial(name: str) -> list[list[int]]:
    return STATES[name].initial(128).tolist()


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_rule_121_shift_register_before_trn3(target: str) -> None:
    golden = [xorshift(state[0], 10)[1] for state in initial(VECTOR_PRNG)[:4]]
    assert drawn(target).tolist() == golden


def test_rule_121_four_xorwow_generators_on_trn3() -> None:
    golden = [side_by_side(state, 10)[1] for state in initial(VECTOR_PRNG)[:4]]
    assert drawn("trn3").tolist() == golden


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_rule_121_one_xorwow_generator_on_gpsimd(target: str) -> None:
    golden = [side_by_side(state, 10)[1] for state in initial(GPSIMD_PRNG)[:4]]
    assert drawn(target, engine=GPSIMD).tolist() == golden


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_rule_121_streams_go_on(target: str) -> None:
    """Two draws are one longer one (on trn3 if the first uses all four generators); a new run starts again."""

    @nki.jit
    def twice(x):
        tile = sbuf((4, 24), nl.uint32)
        nisa.rng(tile[:, 0:8])
        nisa.rng(tile[:, 8:24])
        return store(tile)

    found = nki.simulate(twice, target=target)(np.zeros((1, 1), np.float32))
    assert np.array_equal(found, drawn(target, 24)) and np.array_equal(found, drawn(target, 24))


@pytest.mark.parametrize("dtype", [nl.uint8, nl.int8, nl.uint16, nl.int16, nl.int32])
def test_rule_121_low_bits(dtype: object) -> None:
    full = run(nisa.rng, target="trn2", dst=Out((3, 9), nl.uint32))
    found = run(nisa.rng, target="trn2", dst=Out((3, 9), dtype))
    width = found.itemsize
    low = np.array([[value % (1 << 8 * width) for value in row] for row in full.tolist()], f"u{width}")
    assert np.array_equal(found.view(f"u{width}"), low)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("engine", [VECTOR, GPSIMD])
def test_bits_look_random(target: str, engine: object) -> None:
    found = run(nisa.rng, target=target, dst=Out((128, 256), nl.uint32), engine=engine)
    bits = np.unpackbits(found.view(np.uint8)).reshape(-1, 32)
    assert abs(bits.mean(axis=0) - 0.5).max() < 0.02
    assert len(np.unique(found)) > found.size - 20
    lanes = found.astype(np.float64) / 2**32 - 0.5
    assert abs(np.corrcoef(lanes) - np.eye(128)).max() < 0.4


def test_lanes_are_those_of_the_tile() -> None:
    @nki.jit
    def kernel(x):
        tile = nl.zeros((128, 4), nl.uint32)
        nisa.rng(tile[64:68])
        return store(tile)

    found = nki.simulate(kernel, target="trn2")(np.zeros((1, 1), np.float32))
    golden = [xorshift(state[0], 4)[1] for state in initial(VECTOR_PRNG)[64:68]]
    assert found[64:68].tolist() == golden and not found[:64].any()


def test_engines_have_streams_of_their_own() -> None:
    @nki.jit
    def kernel(x):
        a, b, c = (sbuf((2, 8), nl.uint32) for _ in range(3))
        nisa.rng(a, engine=GPSIMD)
        nisa.rng(b)
        nisa.rng(c, engine=GPSIMD)
        return store(a), store(b), store(c)

    a, b, c = nki.simulate(kernel, target="trn2")(np.zeros((1, 1), np.float32))
    both = np.concatenate([a, c], axis=1)
    assert np.array_equal(both, drawn("trn2", 16, GPSIMD)[:2]) and np.array_equal(b, drawn("trn2", 8)[:2])


def test_eager_draws_the_same() -> None:
    arguments = (np.zeros((1, 1), np.float32), 12, VECTOR)
    for target in ("trn2", "trn3"):
        assert np.array_equal(nki.simulate(words, target=target, eager=True)(*arguments), drawn(target, 12))


def test_default_is_the_vector_engine() -> None:
    kernel = words.ir(np.zeros((1, 1), np.float32), 4, nisa.engine.unknown, target="trn2")
    assert [i.engine for i in kernel.instructions() if i.mnemonic == "rng"] == [VECTOR]
    assert nisa.rng.__signature__.parameters["engine"].default is VECTOR


def test_engines_and_memories() -> None:
    run(nisa.rng, target="trn2", dst=Out((2, 4), nl.int32, psum=True))
    with pytest.raises(errors.EngineError, match="GpSimd cannot reach PSUM"):
        run(nisa.rng, target="trn2", dst=Out((2, 4), nl.int32, psum=True), engine=GPSIMD)
    with pytest.raises(errors.EngineError, match="trn1 GpSimd engine has no random numbers"):
        run(nisa.rng, target="trn1", dst=Out((2, 4), nl.int32), engine=GPSIMD)
    with pytest.raises(errors.EngineError, match="scalar engine cannot run"):
        run(nisa.rng, target="trn2", dst=Out((2, 4), nl.int32), engine=nisa.engine.scalar)


def test_integers_only() -> None:
    for dtype in (nl.float32, nl.bfloat16, nl.bool_):
        with pytest.raises(errors.OperandDtypeError, match="`dst` cannot be"):
            run(nisa.rng, dst=Out((2, 4), dtype))


def test_dimensions_and_cost() -> None:
    flat = run(nisa.rng, target="trn2", dst=Out((2, 12), nl.uint32))
    assert np.array_equal(run(nisa.rng, target="trn2", dst=Out((2, 3, 4), nl.uint32)).reshape(2, 12), flat)
    assert not diagnose(nisa.rng, target="trn2", dst=Out((2, 12), nl.uint32))
    assert interval(nisa.rng, "trn2", dst=Out((2, 500), nl.uint32)) == 500
    assert interval(nisa.rng, "trn2", dst=Out((2, 500), nl.uint32), engine=GPSIMD) == 650
