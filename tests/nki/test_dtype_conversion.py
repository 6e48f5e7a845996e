"""Conversion between data types, against code tables of ml_dtypes and exact arithmetic with fractions."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from nki import dtypes
from nki.dtypes import ALL, as_dtype, cast_into, caster, round_tf32
from nki.errors import DtypeError

NARROW = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
}
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
STORED = [t for t in ALL if t.kind != "packed"]


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def as_bits(array):
    return array.view(f"u{array.itemsize}")


def convert(values, to):
    out = np.zeros(values.shape, as_dtype(to).numpy)
    cast_into(out, values)
    return out


def hard_floats(count=200_000):
    """Float32 of every kind: random patterns, neighbours of all narrow values and of the points between them."""
    random = np.random.default_rng(7).integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    points = [random]
    for type_ in NARROW.values():
        width = np.dtype(type_).itemsize
        codes = np.arange(1 << 8 * width).astype(f"u{width}").view(type_).astype(np.float64)
        exact = np.unique(codes[np.isfinite(codes)])
        between = (exact[1:] + exact[:-1]) / 2
        for centre in (exact.astype(np.float32), between.astype(np.float32)):
            points += [
                centre,
                np.nextafter(centre, np.float32(np.inf)),
                np.nextafter(centre, -np.float32(np.inf)),
            ]
    return np.concatenate(points)


@pytest.mark.parametrize("name", NARROW)
def test_every_narrow_code_widens_exactly(name):
    dtype = as_dtype(name)
    codes = np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}").reshape(-1, 4)
    values = codes.view(dtype.numpy)
    expected = values.astype(np.float32)
    np.testing.assert_array_equal(as_bits(convert(values, "float32")), as_bits(expected))


def test_bfloat16_is_the_upper_half_of_float32():
    codes = np.arange(1 << 16, dtype=np.uint16)
    wide = convert(codes.view(ml_dtypes.bfloat16), "float32")
    np.testing.assert_array_equal(as_bits(wide), codes.astype(np.uint32) << 16)


@pytest.mark.parametrize("name", NARROW)
def test_rounding_is_that_of_ml_dtypes(name):
    values = hard_floats()
    got, expected = convert(values, name), values.astype(NARROW[name])
    np.testing.assert_array_equal(as_bits(got), as_bits(expected))


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"])
def test_rounding_is_to_nearest_even(name):
    """Against the definition: the nearest value, on a tie the one with the even code."""
    dtype = as_dtype(name)
    positive = np.arange(1 << 8 * dtype.itemsize - 1).astype(f"u{dtype.itemsize}")
    table = [float(v) for v in positive.view(dtype.numpy).astype(np.float64)]
    finite = [v for v in table if math.isfinite(v)]
    random = np.random.default_rng(3)
    for low in random.integers(0, len(finite) - 1, 300):
        below, above = Fraction(finite[low]), Fraction(finite[low + 1])
        for part in (0, 1, 3, 4, 5, 7, 8):
            point = np.float32(float(below + (above - below) * part / 8))
            exact = Fraction(float(point))
            nearest = min((abs(exact - v), code % 2, code) for code, v in ((low, below), (low + 1, above)))[2]
            assert as_bits(convert(np.array([point]), name))[0] == nearest
            flipped = as_bits(convert(np.array([-point]), name))[0]
            assert flipped == nearest + (1 << 8 * dtype.itemsize - 1)


def test_overflow_of_narrow_floats():
    huge = np.array([1e30, -1e30, np.inf], np.float32)
    assert np.isinf(convert(huge, "bfloat16").astype(np.float32)).tolist() == [False, False, True]
    assert np.isinf(convert(huge, "float8_e4m3").astype(np.float32)).all()
    assert np.isinf(convert(huge, "float8_e5m2").astype(np.float32)).all()
    assert np.isnan(convert(huge, "float8_e4m3fn").astype(np.float32)).all()
    largest = np.array([-3.4028235e38], np.float32)
    assert np.isneginf(convert(largest, "bfloat16").astype(np.float32)).all()


def nearest_integer(value, low, high):
    """Rule 3, with exact arithmetic."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return high if value > 0 else low
    return min(high, max(low, round(Fraction(value))))


@pytest.mark.parametrize("name", INTEGERS)
def test_rule_3_floats_round_to_even_and_saturate(name):
    limits = np.iinfo(name)
    edges = [0.5, 1.5, 2.5, 0.49999997, -0.5, -1.5, 1e30, -1e30, np.inf, -np.inf, np.nan, -0.0, 16777217.0]
    edges += [limits.max, limits.max + 0.5, limits.max - 0.5, limits.min, limits.min - 0.5, limits.min + 0.5]
    random = np.random.default_rng(1)
    some = np.concatenate([random.uniform(-300, 300, 400), random.uniform(-5e9, 5e9, 400)])
    values = np.concatenate([np.array(edges), some, np.round(some) + 0.5]).astype(np.float32)
    expected = [nearest_integer(float(v), limits.min, limits.max) for v in values]
    assert convert(values, name).tolist() == expected


@pytest.mark.parametrize("name", NARROW)
def test_rule_3_holds_from_narrow_floats(name):
    dtype = as_dtype(name)
    values = (
        np.arange(1 << 8 * dtype.itemsize)
        .astype(f"u{dtype.itemsize}")[:: dtype.itemsize * 7]
        .view(dtype.numpy)
    )
    expected = [nearest_integer(float(v), -128, 127) for v in values]
    assert convert(values, "int8").tolist() == expected


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", [t for t in STORED if t.is_integer])
def test_integers_pass_through_float32(source, target):
    limits, bounds = np.iinfo(source), np.iinfo(target)
    random = np.random.default_rng(2).integers(limits.min, limits.max, 300, endpoint=True)
    values = np.concatenate([[limits.min, limits.max, 0, 1], random]).astype(source)
    expected = values.tolist()
    if source != target:
        expected = [nearest_integer(float(np.float32(v)), bounds.min, bounds.max) for v in expected]
    assert convert(values, target).tolist() == expected


@pytest.mark.parametrize("name", NARROW)
def test_integers_round_to_narrow_floats(name):
    values = np.array([0, 1, 3, 100, -100, 257, 16777217, 2**31 - 1, -(2**31)], np.int32)
    expected = np.array([float(v) for v in values], np.float32).astype(NARROW[name])
    np.testing.assert_array_equal(as_bits(convert(values, name)), as_bits(expected))


@pytest.mark.parametrize("source", [t for t in STORED if t != "bool"])
def test_rule_8_anything_but_zero_is_true(source):
    values = np.array([0.0, 1.0, 2.0, 4.0, 0.0, 64.0], np.float32).astype(source.numpy)
    expected = [float(v) != 0 for v in values]
    got = convert(values, "bool")
    assert got.dtype == np.bool_ and got.tolist() == expected


def test_nan_and_fractions_are_true_and_minus_zero_is_not():
    assert convert(np.array([np.nan, 0.25, -0.0], np.float32), "bool").tolist() == [True, True, False]


@pytest.mark.parametrize("target", [t for t in STORED if t not in ("bool", "float8_e8m0fnu")])
def test_bool_becomes_0_and_1(target):
    assert convert(np.array([True, False]), target).astype(np.float32).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("dtype", ALL)
def test_rule_15_equal_types_copy_bits(dtype):
    codes = np.random.default_rng(4).integers(0, 256, (80, 64 * dtype.itemsize), dtype=np.uint8)
    if dtype == "bool":
        codes &= 1
    source = codes.view(dtype.numpy)
    for rows in (2, 80):  # short and long copies take different ways
        for target in (np.zeros((rows, 64), dtype.numpy), np.zeros((rows, 2 * 64), dtype.numpy)[:, ::2]):
            cast_into(target, source[:rows])
            np.testing.assert_array_equal(target.copy().view(np.uint8), codes[:rows])


def test_rule_16_packed_types_are_not_converted():
    for other in ("uint32", "float32", "float8_e5m2_x4"):
        with pytest.raises(DtypeError):
            caster(np.zeros(4, as_dtype(other).numpy), np.zeros(4, dtypes.float8_e4m3fn_x4.numpy))


def layouts(values):
    """The same values contiguous, with gaps in rows, columns, reversed, transposed and 3-dimensional."""
    rows, columns = values.shape
    yield values.copy()
    for big, view in (
        (np.zeros((rows, columns * 2), values.dtype), np.s_[:, ::2]),
        (np.zeros((rows, columns + 5), values.dtype), np.s_[:, 3:-2]),
        (np.zeros((rows, columns), values.dtype), np.s_[:, ::-1]),
        (np.zeros((columns, rows), values.dtype).T, np.s_[...]),
    ):
        big[view] = values
        yield big[view]


@pytest.mark.parametrize("target", STORED)
@pytest.mark.parametrize("source", STORED)
def test_layout_does_not_matter(source, target):
    values = convert(np.random.default_rng(5).normal(0, 40, (6, 10)).astype(np.float32), source)
    expected = convert(values, target)
    for given in layouts(values):
        for out in layouts(np.zeros((6, 10), target.numpy)):
            cast_into(out, given)
            np.testing.assert_array_equal(as_bits(out.copy()), as_bits(expected))


@pytest.mark.parametrize("target", STORED)
@pytest.mark.parametrize("source", STORED)
def test_calls_may_be_repeated_on_new_content(source, target):
    given, out = np.zeros((3, 1, 5), source.numpy), np.zeros((3, 1, 5), target.numpy)
    calls = caster(out, given)
    for seed in range(2):
        values = np.random.default_rng(seed).normal(0, 10, given.shape).astype(np.float32)
        given[...] = convert(values, source)
        for function, args in calls:
            function(*args)
        np.testing.assert_array_equal(as_bits(out), as_bits(convert(given, target)))


@pytest.mark.parametrize("target", STORED)
def test_scalars_and_broadcast_sources(target):
    single = np.array(3.0, np.float32)
    assert float(convert(single, target)) == (1.0 if target == "bool" else 4.0 if "e8m0" in target else 3.0)
    column = np.broadcast_to(np.array([[1.0], [2.0]], ml_dtypes.bfloat16), (2, 7))
    assert convert(column, target).astype(np.float32)[:, 6].tolist() == [
        1.0,
        1.0 if target == "bool" else 2.0,
    ]


def test_no_call_is_deprecated():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for source in STORED:
            for target in STORED:
                convert(np.zeros((2, 2), source.numpy), target)


def test_rule_23_tfloat32_keeps_ten_bits():
    values = hard_floats(20_000)
    out = np.zeros_like(values)
    round_tf32(out, values)
    assert not (as_bits(out)[~np.isnan(values)] & 0x1FFF).any()
    assert (np.isnan(out) == np.isnan(values)).all()
    half = 2.0**-11
    given = [1.0, 1 + half, 1 + 3 * half, 1 + half * 1.01, -1 - half, np.inf, -np.inf, 3.4028235e38, 0.0]
    kept = [1.0, 1.0, 1 + 4 * half, 1 + 2 * half, -1.0, np.inf, -np.inf, np.inf, 0.0]
    array = np.array(given, np.float32)
    round_tf32(array, array)
    assert array.tolist() == kept
