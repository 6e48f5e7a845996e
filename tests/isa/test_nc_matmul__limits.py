"""What nc_matmul refuses, with the texts that matter, and what it costs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.target import get_target
from tests.isa.tiles import load, psum, run, sbuf, staged, store, whole_numbers

BF16 = ml_dtypes.bfloat16


def shapes(dst, stationary, moving, target="trn2", **options):
    """Run a product of ones in tiles of these shapes."""

    @nki.jit
    def kernel():
        s, m, p = sbuf(stationary, nl.bfloat16), sbuf(moving, nl.bfloat16), psum(dst)
        nisa.memset(dst=s, value=1.0)
        nisa.memset(dst=m, value=1.0)
        nisa.nc_matmul(p, s, m, **options)
        return store(p)

    return run(kernel, target=target)


def test_rule_58_wrong_destination_prints_the_rule():
    with pytest.raises(errors.OperandShapeError) as caught:
        shapes((5, 3), (2, 3), (2, 5))
    text = str(caught.value)
    assert "dst = stationary.T @ moving" in text
    assert "dst must have shape [3, 5]" in text and "[5, 3]" in text


def test_rule_58_contraction_sizes_agree():
    with pytest.raises(
        errors.OperandShapeError, match=r"dimension K .* is 128 in `stationary` but 64 in `moving`"
    ):
        shapes((8, 8), (128, 8), (64, 8))


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_rule_58_moving_limit(target):
    with pytest.raises(errors.LimitError) as caught:
        shapes((8, 640), (128, 8), (128, 640), target)
    assert f"nc_matmul: dimension N of `moving` is 640; {target} allows at most 512" in str(caught.value)


def test_rule_58_moving_limit_on_trn3():
    assert (shapes((8, 4096), (128, 8), (128, 4096), "trn3") == 128).all()
    with pytest.raises(errors.LimitError, match="trn3 allows at most 4096"):
        shapes((8, 4097), (128, 8), (128, 4097), "trn3")


def test_rule_58_stationary_limit():
    with pytest.raises(
        errors.LimitError, match="dimension M of `stationary` is 129; trn2 allows at most 128"
    ):
        shapes((128, 8), (128, 129), (128, 8))


def test_rule_58_one_psum_bank():
    @nki.jit
    def kernel(a, b):
        p = psum((8, 1024))
        nisa.nc_matmul(p[:, 256:768], load(a), load(b))
        return store(p[:, 256:768])

    a, b = np.ones((8, 8), BF16), np.ones((8, 512), BF16)
    with pytest.raises(errors.RuleError) as caught:
        run(kernel, a, b)
    assert "banks 0 to 1" in str(caught.value) and "2048 bytes on trn2" in str(caught.value)
    assert (run(kernel, a, b, target="trn3") == 8).all()


def test_rule_52_memories():
    @nki.jit
    def into_sbuf(a):
        t = load(a)
        nisa.nc_matmul(sbuf((4, 4)), t, t)

    @nki.jit
    def from_hbm(a):
        nisa.nc_matmul(psum((4, 4)), a, load(a))

    with pytest.raises(errors.MemoryError_, match="`dst` must live in psum"):
        run(into_sbuf, np.ones((4, 4), np.float32))
    with pytest.raises(errors.MemoryError_, match="`stationary` must live in sbuf"):
        run(from_hbm, np.ones((4, 4), np.float32))


def test_rule_64_tiles_of_the_array_change_no_value():
    assert (shapes((32, 8), (32, 32), (32, 8), tile_size=(32, 32), tile_position=(96, 64)) == 32).all()
    assert (
        shapes((64, 8), (64, 64), (64, 8), "trn1", tile_size=(64, 128), tile_position=(64, 0)) == 64
    ).all()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"tile_size": (32, 32)}, r"both \(rows, columns\)"),
        ({"tile_position": (0, 0)}, r"both \(rows, columns\)"),
        ({"tile_size": (48, 32), "tile_position": (0, 0)}, "32 or 64 or 128 on trn2"),
        ({"tile_size": (32, 32), "tile_position": (16, 0)}, "a multiple of 32 below 128"),
        ({"tile_size": (32, 32), "tile_position": (128, 0)}, "a multiple of 32 below 128"),
        ({"tile_size": (64, 32), "tile_position": (0, 0)}, "M <= 32"),
        ({"tile_size": (32, 64), "tile_position": (0, 0)}, "K <= 32"),
    ],
)
def test_rule_64_illegal_tiles(options, found):
    with pytest.raises(errors.RuleError, match=found):
        shapes((64, 8), (64, 64), (64, 8), **options)


def test_rule_64_tiles_of_32_rows_from_trn2():
    with pytest.raises(errors.RuleError, match="64 or 128 on trn1"):
        shapes((32, 8), (32, 32), (32, 8), "trn1", tile_size=(32, 32), tile_position=(0, 0))


def test_rules_64_66_double_row_stands_alone():
    double = {"perf_mode": nisa.matmul_perf_mode.double_row}

    @nki.jit
    def kernel(a, options):
        t = load(a)
        nisa.nc_matmul(psum((4, 4)), t, t, **double, **options)

    a = np.ones((8, 2, 4), ml_dtypes.float8_e4m3)
    with pytest.raises(errors.RuleError, match="is_transpose=True"):
        run(kernel, a, {"is_transpose": True})
    with pytest.raises(errors.RuleError, match="column tiling"):
        run(kernel, a, {"tile_size": (128, 64), "tile_position": (0, 0)})


def test_rule_144_enums_refuse_strings():
    with pytest.raises(errors.ArgumentError, match=r"nisa\.matmul_perf_mode"):
        shapes((8, 8), (8, 8), (8, 8), perf_mode="double_row")


# ---- cost ----------------------------------------------------------------------------------------------------------


def busy(dtype, columns, target="trn2", **options):
    """Phases of one product of 128 rows, 128 columns of stationary and `columns` of moving."""

    @nki.jit
    def kernel(a, b):
        p = psum((128, columns))
        nisa.nc_matmul(p, load(a), load(b), **options)
        return store(p)

    arrays = np.ones((128, 128), dtype), np.ones((128, columns), dtype)
    (instruction,) = staged(kernel, "nc_matmul", *arrays, target=target)
    return instruction.cost(get_target(target))


def streaming(phases):
    return sum(phase.interval for phase in phases if phase.kind != "load_stationary")


def test_cost_is_a_column_a_cycle_behind_a_fast_load():
    load_phase, multiply = busy(BF16, 512)
    assert (load_phase.interval, load_phase.background, load_phase.kind) == (32, True, "load_stationary")
    assert (multiply.interval, multiply.kind) == (512, "multiply_moving")


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_cost_of_float32_is_four_passes_in_two_pairs(target):
    phases = busy(np.float32, 512, target)
    assert [p.kind for p in phases] == ["load_stationary", "multiply_moving"] * 2
    assert streaming(phases) == 4 * streaming(busy(BF16, 512, target))


def test_cost_of_a_narrow_tile_is_the_initiation_interval():
    assert streaming(busy(BF16, 8, "trn1")) == 64


def test_cost_hints_halve_float32_only():
    assert streaming(busy(np.float32, 512, is_moving_onezero=True)) == 1024
    assert streaming(busy(BF16, 512, is_moving_onezero=True)) == 512


def test_cost_of_transpose_mode():
    assert streaming(busy(np.float32, 128, "trn1", is_transpose=True)) == 512
    assert streaming(busy(np.float32, 128, "trn2", is_transpose=True)) == 256
    assert busy(BF16, 128, "trn3", is_transpose=True)[-1].background


def test_cost_of_a_wide_stride_is_double():
    @nki.jit
    def kernel(a, b):
        p = psum((4, 64))
        nisa.nc_matmul(p, load(a), load(b)[:, ::16])
        return store(p)

    a, b = whole_numbers((8, 4)).astype(BF16), whole_numbers((8, 1024)).astype(BF16)
    (instruction,) = staged(kernel, "nc_matmul", a, b)
    assert streaming(instruction.cost(get_target("trn2"))) == 128
