"""`nisa.nc_stream_shuffle` against a loop over partitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run, same
from tests.isa.tiles import load, sbuf, store

ROTATE = [(i - 1) % 32 for i in range(32)]
KEEP = 255


def expected(dst: np.ndarray, src: np.ndarray, mask: list[int]) -> np.ndarray:
    result = dst.copy()
    for p in range(len(dst)):
        entry = mask[p % 32]
        if entry != KEEP:
            result[p] = src[p // 32 * 32 + entry]
    return result


def test_published_example_in_place() -> None:
    @nki.jit
    def kernel(x):
        tile = load(x)
        nisa.nc_stream_shuffle(src=tile, dst=tile, shuffle_mask=ROTATE)
        return store(tile)

    x = normal((32, 128))
    same(nki.simulate(kernel)(x), x[[31, *range(31)]])


def test_published_example_broadcast() -> None:
    x = normal((1, 128))
    same(run(nisa.nc_stream_shuffle, dst=Out((32, 128)), src=x, shuffle_mask=[0] * 32), np.repeat(x, 32, 0))


def test_published_example_four_quadrants() -> None:
    x = normal((128, 16))
    golden = np.concatenate([np.roll(x[q : q + 32], 1, axis=0) for q in range(0, 128, 32)])
    same(run(nisa.nc_stream_shuffle, dst=Out(x.shape), src=x, shuffle_mask=ROTATE), golden)


def test_pc_33_rule_113_mask_255_leaves_data_alone() -> None:
    @nki.jit
    def kernel(x):
        tile, out = load(x), sbuf(x.shape)
        nisa.memset(dst=out, value=5.0)
        nisa.nc_stream_shuffle(dst=out, src=tile, shuffle_mask=[KEEP] + [0] * 31)
        return store(out)

    found = nki.simulate(kernel)(np.arange(32, dtype=f32).reshape(32, 1) + 1)
    assert found[:, 0].tolist() == [5] + [1] * 31


@given(
    mask=st.lists(st.one_of(st.integers(0, 31), st.just(KEEP)), min_size=32, max_size=32),
    quadrants=st.sampled_from([1, 2, 4]),
)
def test_rule_113_any_mask(mask: list[int], quadrants: int) -> None:
    x = np.arange(32 * quadrants * 2, dtype=np.int32).reshape(-1, 2)
    found = run(nisa.nc_stream_shuffle, dst=Out(x.shape, nl.int32, fill=-1), src=x, shuffle_mask=mask)
    assert np.array_equal(found, expected(np.full_like(x, -1), x, mask))


def test_rule_113_in_place_with_255() -> None:
    @nki.jit
    def kernel(x):
        tile = load(x)
        nisa.nc_stream_shuffle(dst=tile, src=tile, shuffle_mask=[1, 0, KEEP, 0] + [KEEP] * 28)
        return store(tile)

    x = normal((32, 4))
    same(nki.simulate(kernel)(x), x[[1, 0, 2, 0, *range(4, 32)]])


def test_rule_113_other_quadrant() -> None:
    @nki.jit
    def kernel(x):
        tile, out = load(x), nl.zeros(x.shape, x.dtype)
        nisa.nc_stream_shuffle(dst=out[96:128], src=tile[32:64], shuffle_mask=list(range(31, -1, -1)))
        return store(out)

    x = normal((128, 3))
    found = nki.simulate(kernel)(x)
    assert np.array_equal(found[96:], x[63:31:-1]) and not found[:96].any()


def test_rule_113_fewer_partitions_than_a_quadrant() -> None:
    x = normal((4, 3))
    mask = [3, 2, 1, 0] + [31] * 28  # the rest of the mask is for partitions that dst does not have
    same(run(nisa.nc_stream_shuffle, dst=Out((4, 3)), src=x, shuffle_mask=mask), x[::-1])


@pytest.mark.parametrize("dtype", [np.int32, bf16, ml_dtypes.float8_e4m3, np.uint16])
def test_bits_are_moved(dtype: type) -> None:
    size = np.dtype(dtype).itemsize
    x = np.random.default_rng(0).integers(0, 256, (32, 3 * size), np.uint8).view(dtype)
    found = run(nisa.nc_stream_shuffle, dst=Out(x.shape, x.dtype), src=x, shuffle_mask=ROTATE)
    assert np.array_equal(found.view(np.uint8), np.roll(x.view(np.uint8), 1, axis=0))


def test_without_255_dst_need_not_be_written_before() -> None:
    @nki.jit
    def kernel(x, mask):
        out = sbuf(x.shape)
        nisa.nc_stream_shuffle(dst=out, src=load(x), shuffle_mask=mask)
        return store(out)

    x = normal((32, 2))
    nki.simulate(kernel)(x, tuple(ROTATE))
    with pytest.raises(errors.UninitializedReadError):
        nki.simulate(kernel)(x, (KEEP, *ROTATE[1:]))


def test_rule_113_mask_is_checked() -> None:
    x = normal((32, 2))
    for mask, found in (
        ([0] * 31, "31 entries"),
        ([32] + [0] * 31, "the entry 32"),
        ([-1] + [0] * 31, "entry -1"),
    ):
        with pytest.raises(errors.RuleError, match="32 entries, each 0 to 31 or 255") as error:
            run(nisa.nc_stream_shuffle, dst=Out((32, 2)), src=x, shuffle_mask=mask)
        assert found in str(error.value)
    with pytest.raises(errors.ArgumentError, match="`shuffle_mask`"):
        run(nisa.nc_stream_shuffle, dst=Out((32, 2)), src=x, shuffle_mask=[0.5] * 32)


def test_rule_113_source_has_what_is_read() -> None:
    """One partition serves one quadrant: the others would read partitions 32, 64 and 96."""
    with pytest.raises(errors.RuleError, match="reads partition 96 of `src`, which has 1"):
        run(nisa.nc_stream_shuffle, dst=Out((128, 2)), src=normal((1, 2)), shuffle_mask=[0] * 32)


def test_rule_113_dtype_and_size() -> None:
    x = normal((32, 2))
    with pytest.raises(errors.OperandDtypeError, match="`dst` is bfloat16, but `src` is float32"):
        run(nisa.nc_stream_shuffle, dst=Out((32, 2), nl.bfloat16), src=x, shuffle_mask=ROTATE)
    with pytest.raises(errors.OperandShapeError, match="dimension F"):
        run(nisa.nc_stream_shuffle, dst=Out((32, 3)), src=x, shuffle_mask=ROTATE)


@pytest.mark.parametrize(
    ("start", "count", "legal"),
    [
        (0, 128, True),
        (32, 96, False),
        (64, 64, True),
        (32, 64, False),
        (96, 32, True),
        (64, 32, True),
        (16, 32, False),
        (5, 1, False),
        (32, 1, True),
    ],
)
def test_rules_51_113_start_partitions(start: int, count: int, legal: bool) -> None:
    @nki.jit
    def kernel(x):
        tile, out = load(x), sbuf((count, 2))
        nisa.nc_stream_shuffle(dst=out, src=tile[start : start + count], shuffle_mask=list(range(32)))
        return store(out)

    x = normal((128, 2))
    if legal:
        same(nki.simulate(kernel)(x), x[start : start + count])
    else:
        with pytest.raises(errors.RuleError, match=f"`src` starts at partition {start}"):
            nki.simulate(kernel)(x)


def test_psum_and_cost() -> None:
    x = normal((32, 500))
    found = run(nisa.nc_stream_shuffle, dst=Out(x.shape, psum=True), src=Psum(x), shuffle_mask=ROTATE)
    same(found, np.roll(x, 1, axis=0))
    assert interval(nisa.nc_stream_shuffle, "trn2", dst=Out(x.shape), src=x, shuffle_mask=ROTATE) == 500
