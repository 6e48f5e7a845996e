"""`nisa.quantize_mx` against the documented formula, group by group, and against values worked out by hand."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa import mx
from tests.isa.single import Out, bf16, diagnose, f32, interval, normal, run
from tests.isa.tiles import load, staged, store

E4M3, E5M2 = "float8_e4m3fn_x4", "float8_e5m2_x4"
F16 = np.float16


@nki.jit
def quantize(x, dtype, rows, start):
    """Words and scales; the scale tile has `rows` partitions full of 99, of which those from `start` on are passed."""
    q = nl.ndarray((x.shape[0], x.shape[1] // 4), dtype=getattr(nl, dtype), buffer=nl.sbuf)
    s = mx.fresh_scales((rows, x.shape[1] // 4))
    nisa.quantize_mx(dst=q, src=load(x), dst_scale=s[start:])
    return store(q.view(nl.uint32)), store(s)


def simulate(x: Any, dtype: str, rows: int | None = None, start: int = 0) -> tuple[Any, Any]:
    return nki.simulate(quantize, target="trn3")(x, dtype, rows or len(x), start)


def test_documented_scale_by_hand() -> None:
    """The largest value, 956, would be clamped to 896 by the OCP sample; here it becomes 240 * 4."""
    x = np.zeros((32, 4), bf16)
    x[0, 0] = 956.0
    words, scales = simulate(x, E4M3)
    assert scales[0, 0] == 129 and scales[1:4, 0].tolist() == [0, 0, 0]
    code = int(words[0, 0]) & 255
    assert mx.value(E4M3, code) == 240 and words[0, 0] >> 8 == 0 and not words[1:].any()


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("source", [bf16, F16])
@pytest.mark.parametrize("partitions", [32, 64, 96, 128])
def test_rules_115_to_118(dtype: str, source: Any, partitions: int) -> None:
    spreading = np.exp2(np.random.default_rng(1).integers(-12, 8, (partitions // 8, 6)))
    x = (normal((partitions, 24)) * np.repeat(np.repeat(spreading, 8, 0), 4, 1)).astype(source)
    words, scales = simulate(x, dtype)
    codes, expected = mx.quantized(x, dtype)
    np.testing.assert_array_equal(mx.unpacked(dtype, words), codes)
    np.testing.assert_array_equal(scales, mx.spread(expected, partitions))


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_rule_118_nothing_is_clamped(dtype: str) -> None:
    """Every magnitude of bfloat16 that is not tiny survives with the precision of the type."""
    codes = np.arange(0x0400, 0x7F80, dtype=np.uint16)
    codes = np.resize(codes, (len(codes) + 31) // 32 * 32)
    x = np.zeros((32, len(codes)), bf16)
    x[0, ::4] = codes.view(bf16)[::4]
    words, scales = simulate(x, dtype)
    found = mx.dequantized(dtype, mx.unpacked(dtype, words), scales[:4])[0, :, 0]
    wanted = x[0, ::4].astype(np.float64)
    steps = 8 if dtype == E4M3 else 4
    assert (np.abs(found - wanted) <= wanted / (2 * steps)).all()


def test_rule_118_zeros_and_the_smallest_scale() -> None:
    """A group of zeros has 2^-127, which is also the least scale of tiny values (OPEN: the page names no limit)."""
    x = np.zeros((32, 8), bf16)
    x[8, 4] = np.array(1, np.uint16).view(bf16)  # 2^-133
    words, scales = simulate(x, E4M3)
    assert not scales[:4].any()
    assert mx.value(E4M3, int(words[8, 1]) & 255) == 2.0**-6 and np.count_nonzero(words) == 1


def test_special_values_poison_their_group_only() -> None:
    """OPEN in the documentation: NaN and infinity give the NaN scale and NaN elements."""
    x = np.ones((32, 8), bf16)
    x[3, 1], x[9, 6] = np.nan, -np.inf
    words, scales = simulate(x, E5M2)
    assert scales[:4].tolist() == [[255, 113], [113, 255], [113, 113], [113, 113]]
    values = words.view(np.uint8).reshape(32, 2, 4).view(ml_dtypes.float8_e5m2).astype(f32)
    assert np.isnan(values[:8, 0]).all() and np.isnan(values[8:16, 1]).all()
    assert (values[:8, 1] == 2.0**14).all()


@pytest.mark.parametrize("rows", [4, 8, 32])
def test_rule_116_scales_of_one_quadrant(rows: int) -> None:
    """(P/8, F/4), or oversize."""
    x = normal((32, 8), bf16)
    _, scales = simulate(x, E4M3, rows)
    np.testing.assert_array_equal(scales[:4], mx.quantized(x, E4M3)[1])
    assert (scales[4:] == 99).all()


@pytest.mark.parametrize("offset", [0, 4, 8, 12])
def test_rule_116_offsets_leave_the_neighbours_alone(offset: int) -> None:
    x = normal((128, 8), bf16)
    _, scales = simulate(x, E5M2, 128, offset)
    np.testing.assert_array_equal(scales, mx.spread(mx.quantized(x, E5M2)[1], 128, offset))


@nki.jit
def into_columns(x):
    q = nl.ndarray((64, 6), dtype=nl.float8_e5m2_x4, buffer=nl.sbuf)
    nisa.memset(dst=q, value=0)
    s = mx.fresh_scales((64, 6))
    nisa.quantize_mx(dst=q[:, 1:5:3], src=load(x)[:, 8:], dst_scale=s.view(nl.float8_e8m0fnu)[:, 2:4])
    return store(q.view(nl.uint32)), store(s)


def test_views_of_all_operands() -> None:
    x = normal((64, 16), bf16)
    words, scales = nki.simulate(into_columns, target="trn3")(x)
    codes, expected = mx.quantized(x[:, 8:], E5M2)
    np.testing.assert_array_equal(mx.unpacked(E5M2, words[:, 1:5:3]), codes)
    assert not words[:, [0, 2, 3, 5]].any()
    np.testing.assert_array_equal(scales[:, 2:4], mx.spread(expected, 64))
    assert (scales[:, [0, 1, 4, 5]] == 99).all()


@nki.jit
def unwritten(x):
    q = nl.ndarray((64, 2), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    s = nl.ndarray((64, 2), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.quantize_mx(dst=q, src=load(x), dst_scale=s)
    return store(s[32:36]), store(s)


def test_rule_116_other_partitions_are_not_written() -> None:
    with pytest.raises(errors.UninitializedReadError, match="uninitialised"):
        nki.simulate(unwritten, target="trn3")(normal((64, 8), bf16))


def given(**changes: Any) -> dict[str, Any]:
    return {
        "dst": Out((64, 2), nl.float8_e4m3fn_x4),
        "src": normal((64, 8), bf16),
        "dst_scale": Out((64, 2), nl.uint8),
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"src": normal((64, 8))}, errors.OperandDtypeError, "bfloat16, float16"),
        (
            {"dst": Out((64, 2), nl.float4_e2m1fn_x4)},
            errors.OperandDtypeError,
            "float8_e4m3fn_x4, float8_e5m2_x4",
        ),
        ({"dst_scale": Out((64, 2), nl.int8)}, errors.OperandDtypeError, "float8_e8m0fnu, uint8"),
        ({"src": normal((64, 12), bf16)}, errors.OperandShapeError, "four elements"),
        ({"dst_scale": Out((64, 3), nl.uint8)}, errors.OperandShapeError, "dimension F"),
        (
            {"dst_scale": Out((8, 2), nl.uint8)},
            errors.OperandShapeError,
            "8 partitions, the scales of 64 need 36",
        ),
        (
            {"src": normal((48, 8), bf16), "dst": Out((48, 2), nl.float8_e4m3fn_x4)},
            errors.OperandShapeError,
            "whole quadrants of 32",
        ),
        ({"dst": Out((32, 2), nl.float8_e4m3fn_x4)}, errors.OperandShapeError, "dimension P"),
        ({"dst": Out((64, 2), nl.float8_e4m3fn_x4, psum=True)}, errors.MemoryError_, "sbuf"),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as raised:
        run(nisa.quantize_mx, "trn3", **given(**changes))
    assert raised.value.remedy  # type: ignore[attr-defined]


@pytest.mark.parametrize("start", [2, 16, 28])
def test_rule_116_other_offsets_are_refused(start: int) -> None:
    with pytest.raises(errors.RuleError, match="0, 4, 8 or 12") as raised:
        simulate(normal((32, 4), bf16), E4M3, 64, start)
    assert raised.value.remedy


def test_scales_in_another_quadrant_are_a_warning() -> None:
    def other(dst: Any, src: Any, scale: Any) -> None:
        nisa.quantize_mx(dst=dst, src=src, dst_scale=scale[32:])

    @nki.jit
    def kernel(x):
        q = nl.ndarray((32, 1), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        other(q, load(x), mx.fresh_scales((64, 1)))

    found = [d.message for d in kernel.check(normal((32, 4), bf16), target="trn3") if d.code == "quantize_mx"]
    assert len(found) == 1 and "the same quadrant" in found[0]


def test_no_warnings_on_packed_scales() -> None:
    assert not diagnose(nisa.quantize_mx, "trn3", **given())
    nodes = staged(quantize, "quantize_mx", normal((128, 8), bf16), E4M3, 128, 4, target="trn3")
    assert len(nodes) == 1


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_not_before_trn3(target: str) -> None:
    with pytest.raises(errors.TargetError, match="trn3 and later"):
        quantize.ir(normal((32, 4), bf16), E4M3, 32, 0, target=target)


def test_cost() -> None:
    """Published: four elements per cycle."""
    changes = {
        "src": normal((64, 4096), bf16),
        "dst": Out((64, 1024), nl.float8_e4m3fn_x4),
        "dst_scale": Out((64, 1024), nl.uint8, fill=0),
    }
    assert interval(nisa.quantize_mx, "trn3", **given(**changes)) == 1024
