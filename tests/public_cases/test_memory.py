"""Memory that is not written, shared by two tiles, too small, or returned in an unexpected form."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.public_cases.steps import (
    FP32_MIN,
    bank,
    bf16,
    down,
    exact,
    f32,
    fails,
    line_of,
    read_out,
    report,
    run,
    tile,
    up,
)


@nki.jit
def partly_written(x):
    acc = tile((128, 8), name="acc")
    nisa.dma_copy(dst=acc[:, 0:7], src=x)
    clamped = tile((128, 8))
    nisa.tensor_scalar(dst=clamped, data=acc, op0=nl.maximum, operand0=0.0)
    return down(clamped)


def test_pc_17_a_column_that_was_never_written():
    found = report(partly_written, np.ones((128, 7), f32))
    assert found.code == "uninitialized-read" and found.line == line_of(partly_written, "nisa.tensor_scalar")
    assert "acc" in found.message and "7" in found.message
    assert isinstance(fails(partly_written, np.ones((128, 7), f32)), errors.UninitializedReadError)


def test_pc_19_accumulation_onto_unwritten_psum():
    @nki.jit
    def kernel(a, b):
        p = bank((128, 64))
        nisa.nc_matmul(dst=p, stationary=up(a), moving=up(b), accumulate=True)
        return read_out(p)

    arrays = np.ones((128, 128), bf16), np.ones((128, 64), bf16)
    found = report(kernel, *arrays)
    assert found.line == line_of(kernel, "nisa.nc_matmul")
    assert "nc_matmul" in found.message and "`dst`" in found.message
    assert isinstance(fails(kernel, *arrays, sanitize=True), errors.UninitializedReadError)


@nki.jit
def laid_over_each_other(x, y):
    a = tile((128, 64), name="lower", address=(0, 0))
    b = tile((128, 64), name="upper", address=(0, 32))
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    return down(a)


def test_pc_39_two_live_tiles_at_one_address():
    arrays = np.ones((128, 64), f32), np.full((128, 64), 2, f32)
    found = report(laid_over_each_other, *arrays)
    assert found.code == "aliasing" and "lower" in found.message and "upper" in found.message
    result = run(laid_over_each_other, *arrays)
    exact(result[:, :8], np.ones((128, 8)))
    exact(result[:, 8:], np.full((128, 56), 2))
    assert isinstance(fails(laid_over_each_other, *arrays, sanitize=True), errors.AliasingError)


def test_pc_47_more_than_sbuf_holds():
    @nki.jit
    def kernel(x):
        a, b = tile((128, 40000), name="weights"), tile((128, 40000), name="acts")
        for t in (a, b):
            nisa.memset(dst=t, value=1.0)
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        return down(a[:, 0:1])

    for eager in (False, True):
        with pytest.raises(errors.CapacityError) as caught:
            nki.simulate(kernel, target="trn2", eager=eager)(np.zeros((1, 1), f32))
    text = str(caught.value).replace(",", "")
    assert "weights" in text and "acts" in text and text.count("160000") >= 2
    assert "sbuf" in text.lower()


def test_pc_49_several_three_dimensional_tiles_and_outputs():
    @nki.jit
    def kernel(x, y):
        t = tile((128, 2, 16), nl.float16)
        for i in range(2):
            nisa.dma_copy(dst=t[:, i, :], src=(x if i == 0 else y))
        return down(t[:, 1, :]), down(t[:, 0, :])

    a, b = np.ones((128, 16), np.float16), np.full((128, 16), 2, np.float16)
    second, first = run(kernel, a, b)
    assert second.dtype == np.float16
    exact(second, b)
    exact(first, a)


# --- neighbours ---------------------------------------------------------------------------------------------


def test_the_gap_is_found_though_nan_would_not_survive():
    """`maximum` with 0 and a mask would hide a NaN; the report does not depend on values."""

    @nki.jit
    def kernel(x):
        t, o = tile((4, 8), name="half"), tile((4, 8))
        nisa.dma_copy(dst=t[0:2, :], src=x)
        nisa.affine_select(dst=o, pattern=[[0, 8]], channel_multiplier=-1, offset=1, on_true_tile=t,
                           on_false_value=FP32_MIN, cmp_op=nl.greater_equal)  # fmt: skip
        return down(o)

    found = report(kernel, np.ones((2, 8), f32))
    assert found.code == "uninitialized-read" and "half" in found.message


def test_the_gap_is_poison_if_one_insists():
    found = nki.simulate(partly_written, target="trn2", sanitize=False)(np.ones((128, 7), f32))
    exact(found[:, :7], np.ones((128, 7)))
    assert report(partly_written, np.ones((128, 7), f32)).severity == "error"


def test_reading_psum_that_nobody_wrote():
    @nki.jit
    def kernel(x):
        return read_out(bank((4, 4)))

    assert report(kernel, np.zeros((1, 1), f32)).code == "uninitialized-read"


def test_an_output_that_nothing_writes():
    @nki.jit
    def kernel(x):
        return tile(x.shape, x.dtype, nl.shared_hbm, name="answer")

    found = report(kernel, np.zeros((2, 2), f32))
    assert found.code == "unwritten-output" and "answer" in found.message


def test_a_tile_read_before_its_load():
    @nki.jit
    def kernel(x):
        t, o = tile(x.shape), tile(x.shape)
        nisa.tensor_copy(dst=o, src=t)
        nisa.dma_copy(dst=t, src=x)
        return down(o)

    found = report(kernel, np.zeros((2, 2), f32))
    assert found.code == "uninitialized-read" and found.line == line_of(kernel, "nisa.tensor_copy")


def test_addresses_that_only_touch_are_no_overlap():
    @nki.jit
    def kernel(x, y):
        a, b = tile((4, 64), address=(0, 0)), tile((4, 64), address=(0, 256))
        nisa.dma_copy(dst=a, src=x)
        nisa.dma_copy(dst=b, src=y)
        return down(a), down(b)

    a, b = np.ones((4, 64), f32), np.full((4, 64), 2, f32)
    assert [d for d in kernel.check(a, b) if d.severity != "note"] == []
    for found, expected in zip(run(kernel, a, b), (a, b)):
        exact(found, expected)


def test_one_address_for_two_tiles_in_turn_is_fine():
    @nki.jit
    def kernel(x, y):
        outputs = []
        for tensor in (x, y):
            t = tile((4, 64), address=(0, 0))
            nisa.dma_copy(dst=t, src=tensor)
            outputs.append(down(t))
        return tuple(outputs)

    a, b = np.ones((4, 64), f32), np.full((4, 64), 2, f32)
    for found, expected in zip(run(kernel, a, b), (a, b)):
        exact(found, expected)


def test_more_banks_than_psum_has():
    @nki.jit
    def kernel(x):
        s = up(x)
        tiles = [bank((128, 512)) for _ in range(9)]
        for p in tiles:
            nisa.nc_matmul(dst=p, stationary=s, moving=s[:, 0:1].broadcast(1, 512))
        for p in tiles[1:]:
            nisa.tensor_tensor(dst=tiles[0], data1=read_in(p), data2=tiles[0], op=nl.add)
        return read_out(tiles[0])

    def read_in(p):
        copy = tile(p.shape)
        nisa.tensor_copy(dst=copy, src=p)
        return copy

    error = fails(kernel, np.ones((128, 128), bf16))
    assert isinstance(error, errors.CapacityError) and "psum" in str(error).lower()


def test_tiles_that_are_dead_need_no_room():
    @nki.jit
    def kernel(x):
        for _ in range(4):
            t = tile((128, 30000))
            nisa.memset(dst=t, value=1.0)
            last = down(t[:, 0:1])
        return last

    exact(run(kernel, np.zeros((1, 1), f32)), np.ones((128, 1)))
