"""rand, dropout and random_seed."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.language.run import bf16, down, f32, run

X = np.zeros((1, 1), f32)


def drawn(shape: tuple[int, ...], dtype: object = nl.float32, buffer: object = nl.sbuf, target: str = "trn2"):
    @nki.jit
    def kernel(x):
        tile = nl.rand(shape, dtype, buffer)
        return tile if buffer is nl.shared_hbm else down(tile)

    return nki.simulate(kernel, target=target)(X)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_rule_123_uniform_in_zero_to_one(target):
    found = drawn((128, 512), target=target)
    assert found.dtype == f32 and found.min() >= 0 and found.max() < 1
    counts, _ = np.histogram(found, bins=10, range=(0, 1))
    assert abs(counts / counts.mean() - 1).max() < 0.1


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize(
    "dtype", [nl.bfloat16, nl.float16, nl.tfloat32, nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2]
)
def test_rule_123_one_is_never_reached_by_rounding(target, dtype):
    found = drawn((128, 512), dtype, target=target).astype(f32)
    largest = {"bfloat16": 1 - 2**-8, "float16": 1 - 2**-11, "tfloat32": 1 - 2**-11, "float8_e5m2": 0.875}
    assert found.min() >= 0 and found.max() == largest.get(str(dtype), 0.9375)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize(
    ("buffer", "shape"), [(nl.psum, (4, 8)), (nl.shared_hbm, (130, 700)), (nl.shared_hbm, (9,))]
)
def test_every_memory(target, buffer, shape):
    found = drawn(shape, nl.float32, buffer, target)
    assert found.shape == shape and found.min() >= 0 and found.max() < 1
    assert len(np.unique(found)) > 0.99 * found.size


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_rule_123_documented_example_of_random_seed(target):
    @nki.jit
    def kernel(x):
        seed = nl.full((1, 1), 42, dtype=nl.int32, buffer=nl.sbuf)
        nl.random_seed(seed)
        a = nl.rand((128, 64), dtype=nl.float32)
        nl.random_seed(seed)
        b = nl.rand((128, 64), dtype=nl.float32)
        return down(a), down(b), down(nl.rand((128, 64), dtype=nl.float32))

    a, b, c = nki.simulate(kernel, target=target)(X)
    assert np.array_equal(a, b) and not np.array_equal(b, c)


def test_rule_123_the_seed_is_a_tensor():
    with pytest.raises(errors.ArgumentError, match=r"nl.random_seed: `seed` must be a tensor"):
        run(lambda x: (nl.random_seed(42), x)[1], X)


def test_rule_122_dropout():
    x = np.abs(np.random.default_rng(0).standard_normal((128, 256))).astype(f32) + f32(1)
    found = run(lambda t: nl.dropout(t, 0.25), x)
    assert abs((found == 0).mean() - 0.25) < 0.02 and np.array_equal(found[found != 0], x[found != 0])
    share = np.where(np.arange(128) % 2, 1, 0).astype(f32)[:, None]
    found = run(nl.dropout, x, share)
    assert np.array_equal(found, np.where(share, 0, x))
    assert run(lambda t: nl.dropout(t, 0.0, dtype=nl.bfloat16), x).dtype == bf16
    assert not run(lambda t: nl.dropout(t, np.float32(1)), x).any()


def test_dropout_needs_tiles_and_numbers():
    with pytest.raises(errors.ArgumentError, match=r"nl.dropout: `x` must be a tensor"):
        run(lambda t: nl.dropout(1.0, 0.5), X)
    with pytest.raises(errors.ArgumentError, match=r"nl.dropout: `rate` must be a tensor"):
        run(lambda t: nl.dropout(t, "half"), X)


def test_the_recipe_on_each_generation():
    def mnemonics(target):
        @nki.jit
        def kernel(x):
            return down(nl.rand((4, 4), nl.float32))

        return [i.mnemonic for i in kernel.ir(X, target=target).instructions()]

    assert mnemonics("trn3") == ["rand2", "dma_copy"]
    assert mnemonics("trn2") == ["rng", "tensor_scalar", "tensor_scalar", "dma_copy"]
    assert nisa.rand2.instruction.since == nisa.nc_version.gen4
