"""`nisa.nc_matmul_mx` against sums of dequantised products in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.target import get_target
from tests.isa import mx
from tests.isa.single import bf16, f32
from tests.isa.tiles import load, psum, staged, store

E4M3, E5M2, E2M1 = "float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4"


def side(dtype: str, rows: int, columns: int, seed: int) -> tuple[Any, Any]:
    """Random codes [K, columns, 4] and scales [K/8, columns] within 2^-8 and 2^8."""
    chance = np.random.default_rng(seed)
    codes = mx.finite(dtype, chance.integers(0, 256, (rows, columns, 4)).astype(np.uint8))
    return codes, chance.integers(119, 136, (rows // 8, columns)).astype(np.uint8)


def product(left: tuple[str, Any, Any], right: tuple[str, Any, Any]) -> Any:
    """Rule 119 in float64: sum over partitions and lanes."""
    a, b = (mx.dequantized(*operand) for operand in (left, right))
    out = np.zeros((a.shape[1], b.shape[1]))
    for k in range(len(a)):
        for lane in range(4):
            out += np.outer(a[k, :, lane], b[k, :, lane])
    return out


def close(found: Any, left: tuple[str, Any, Any], right: tuple[str, Any, Any]) -> None:
    """Equal up to what float32 rounding of each partial sum allows."""
    a, b = (np.abs(mx.dequantized(*operand)) for operand in (left, right))
    allowed = np.einsum("kml,knl->mn", a, b) * len(a) * 2**-23
    assert (np.abs(found.astype(np.float64) - product(left, right)) <= allowed).all()


@nki.jit
def multiply(a, b, sa, sb, dtypes, options):
    """One product of loaded tiles; options: the dtype of dst and the keywords of the call."""
    left, right = mx.load_packed(a, dtypes[0]), mx.load_packed(b, dtypes[1])
    out = psum((a.shape[1], b.shape[1]), options.get("out", nl.float32))
    starts = options.get("starts", (0, 0))
    scales = [load(s)[start:] for s, start in zip((sa, sb), starts)]
    nisa.nc_matmul_mx(out, left, right, *scales, **options.get("keywords", {}))
    return store(out)


def simulate(left: tuple[str, Any, Any], right: tuple[str, Any, Any], **options: Any) -> Any:
    rows = len(left[1])
    words = [mx.packed(dtype, codes) for dtype, codes, _ in (left, right)]
    tiles = [mx.spread(scales, rows) for _, _, scales in (left, right)]
    return nki.simulate(multiply, target="trn3")(*words, *tiles, (left[0], right[0]), options)


def test_by_hand() -> None:
    """One partition and two lanes hold numbers: 2 * (1 * 3 + 2 * 0.5) / 4."""
    a, b = np.zeros((32, 2, 4), np.uint8), np.zeros((32, 1, 4), np.uint8)
    codes = {0.5: 0x30, 1.0: 0x38, 2.0: 0x40, 3.0: 0x44}
    a[9, 0, :2], b[9, 0, :2] = (codes[1.0], codes[2.0]), (codes[3.0], codes[0.5])
    ones = np.full((4, 2), 127, np.uint8)
    sa, sb = ones.copy(), ones[:, :1].copy()
    sa[1, 0], sb[1, 0] = 128, 125
    assert simulate((E4M3, a, sa), (E4M3, b, sb)).tolist() == [[2.0], [0.0]]


@pytest.mark.parametrize("left", [E4M3, E5M2, E2M1])
@pytest.mark.parametrize("right", [E4M3, E5M2, E2M1])
def test_rule_119_all_pairs_of_types(left: str, right: str) -> None:
    a, b = (left, *side(left, 64, 6, 1)), (right, *side(right, 64, 5, 2))
    close(simulate(a, b), a, b)


@pytest.mark.parametrize("rows", [32, 64, 96, 128])
def test_rule_119_partitions(rows: int) -> None:
    a, b = (E5M2, *side(E5M2, rows, 128, 3)), (E4M3, *side(E4M3, rows, 40, 4))
    close(simulate(a, b), a, b)


@pytest.mark.parametrize("rows", [32, 128])
def test_rule_119_bfloat16(rows: int) -> None:
    a, b = (E2M1, *side(E2M1, rows, 8, 5)), (E2M1, *side(E2M1, rows, 8, 6))
    found = simulate(a, b, out=nl.bfloat16)
    assert found.dtype == bf16
    np.testing.assert_array_equal(found, simulate(a, b).astype(bf16))


@pytest.mark.parametrize("dtype", [E4M3, E5M2, E2M1])
def test_rule_115_every_code_in_every_lane(dtype: str) -> None:
    """Against the identity in one lane, a column at a time: the stored values themselves come out."""
    count = 16 if dtype == E2M1 else 256
    codes = mx.finite(dtype, np.arange(count, dtype=np.uint8))
    for lane in range(4):
        b = np.zeros((32, count, 4), np.uint8)
        b[0, :, lane] = codes
        a = np.zeros((32, 2, 4), np.uint8)
        a[0, 0, lane] = 0x38
        one = np.full((4, 2), 127, np.uint8)
        found = simulate((E4M3, a, one), (dtype, b, np.full((4, count), 127, np.uint8)))
        assert found[0].tolist() == [mx.value(dtype, int(code)) for code in codes]


def test_rule_117_every_scale() -> None:
    """2^(e - 127) for each byte but 255, which is NaN."""
    a, b = np.zeros((32, 2, 4), np.uint8), np.zeros((32, 256, 4), np.uint8)
    a[0, 0, 0] = b[0, :, 0] = 0x38
    scales = np.full((4, 256), 127, np.uint8)
    scales[0] = np.arange(256)
    found = simulate((E4M3, a, np.full((4, 2), 127, np.uint8)), (E4M3, b, scales))
    assert found[0, :255].tolist() == [2.0 ** (e - 127) for e in range(255)]
    assert np.isnan(found[:, 255]).all()


@pytest.mark.parametrize("starts", [(0, 4), (12, 8), (4, 4)])
def test_rule_116_scales_at_offsets_and_with_more_columns(starts: tuple[int, int]) -> None:
    """Slices of one tile; columns beyond the data are left alone."""
    a, b = (E4M3, *side(E4M3, 128, 4, 7)), (E5M2, *side(E5M2, 128, 6, 8))
    words = [mx.packed(dtype, codes) for dtype, codes, _ in (a, b)]
    tiles = [mx.spread(s, 128, start, 9, fill=255) for (_, _, s), start in zip((a, b), starts)]
    found = nki.simulate(multiply, target="trn3")(*words, *tiles, (E4M3, E5M2), {"starts": starts})
    close(found, a, b)


@nki.jit
def small_scales(a, b, sa, sb):
    out = psum((a.shape[1], b.shape[1]))
    scales = [load(s).view(nl.float8_e8m0fnu) for s in (sa, sb)]
    nisa.nc_matmul_mx(out, mx.load_packed(a, E4M3), mx.load_packed(b, E4M3), *scales)
    return store(out)


def test_rule_116_small_scale_tiles() -> None:
    """With 32 partitions, (P/8, F) is enough; scales may be e8m0."""
    a, b = (E4M3, *side(E4M3, 32, 4, 9)), (E4M3, *side(E4M3, 32, 3, 10))
    words = [mx.packed(E4M3, codes) for _, codes, _ in (a, b)]
    found = nki.simulate(small_scales, target="trn3")(*words, a[2], b[2])
    np.testing.assert_array_equal(found, simulate(a, b))


@nki.jit
def accumulated(a, b, s, commands, dtype):
    left, right, scales = mx.load_packed(a, E2M1), mx.load_packed(b, E2M1), load(s)
    out = psum((2, b.shape[1]), dtype)
    for command, columns in commands:
        some = slice(0, columns)
        nisa.nc_matmul_mx(out[:, some], left, right[:, some], scales, scales[:, some], accumulate=command)
    return store(out)


def test_rule_60_accumulation() -> None:
    """False overwrites, True adds, None decides by element."""
    a, b = np.zeros((32, 2, 4), np.uint8), np.zeros((32, 4, 4), np.uint8)
    a[0, :, 0], b[0, :, 0] = 2, [2, 4, 5, 6]  # 1 * (1, 2, 3, 4)
    words, scales = (mx.packed(E2M1, a), mx.packed(E2M1, b)), np.full((4, 4), 127, np.uint8)
    run = nki.simulate(accumulated, target="trn3")
    row = np.array([1, 2, 3, 4], f32)
    assert run(*words, scales, ((None, 4),), nl.float32)[0].tolist() == row.tolist()
    assert (
        run(*words, scales, ((None, 4), (None, 4), (True, 4)), nl.float32)[0].tolist() == (3 * row).tolist()
    )
    assert run(*words, scales, ((None, 4), (False, 4)), nl.float32)[0].tolist() == row.tolist()
    found = run(*words, scales, ((None, 2), (None, 4), (None, 3)), nl.bfloat16)
    assert found[1].astype(f32).tolist() == [3, 6, 6, 4]


def test_rule_59_bfloat16_accumulates_with_a_rounding_each_time() -> None:
    a, b = np.zeros((32, 2, 4), np.uint8), np.zeros((32, 1, 4), np.uint8)
    a[0, :, 0], b[0, 0, 0] = 2, 5
    scales = np.full((4, 2), 127, np.uint8)
    scales[0, 0] += 6  # stationary and moving share the tile: 3 * 2^12
    commands = ((None, 1),) * 100
    expected = bf16(0)
    for _ in range(100):
        expected = bf16(f32(expected) + f32(3 * 2**12))
    found = nki.simulate(accumulated, target="trn3")(
        mx.packed(E2M1, a), mx.packed(E2M1, b), scales, commands, nl.bfloat16
    )
    assert found[0, 0] == expected


def test_rule_60_accumulate_on_fresh_psum_warns() -> None:
    a, b = (E4M3, *side(E4M3, 32, 2, 1)), (E4M3, *side(E4M3, 32, 2, 2))
    words = [mx.packed(E4M3, codes) for _, codes, _ in (a, b)]
    options = {"keywords": {"accumulate": True}}
    found = multiply.check(*words, a[2], b[2], (E4M3, E4M3), options, target="trn3")
    assert [d.code for d in found if d.code == "accumulate-unwritten"]


def test_rule_119_row_tiles_change_nothing() -> None:
    a, b = (E4M3, *side(E4M3, 32, 4, 1)), (E4M3, *side(E4M3, 32, 4, 2))
    keywords = {"tile_size": (32, 128), "tile_position": (96, 0)}
    np.testing.assert_array_equal(simulate(a, b, keywords=keywords), simulate(a, b))


def test_the_example_of_quantize_then_multiply() -> None:
    """The product of bfloat16 matrices that are quantised on the way."""

    @nki.jit
    def kernel(x, y):
        tiles = []
        for source in (x, y):
            q = nl.ndarray((128, source.shape[1] // 4), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
            s = nl.ndarray((128, source.shape[1] // 4), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.quantize_mx(dst=q, src=load(source), dst_scale=s)
            tiles.append((q, s))
        out = psum((x.shape[1] // 4, y.shape[1] // 4))
        nisa.nc_matmul_mx(out, tiles[0][0], tiles[1][0], tiles[0][1], tiles[1][1])
        return store(out)

    chance = np.random.default_rng(0)
    x, y = (chance.standard_normal((128, 4 * n)).astype(bf16) for n in (16, 24))
    sides = [(E4M3, *mx.quantized(t, E4M3)) for t in (x, y)]
    close(nki.simulate(kernel, target="trn3")(x, y), *sides)
    exact = np.einsum("kml,knl->mn", *(t.astype(f32).reshape(128, -1, 4) for t in (x, y)))
    assert np.corrcoef(product(*sides).ravel(), exact.ravel())[0, 1] > 0.998


def shaped(a: Any = (64, 4), b: Any = (64, 6), sa: Any = (64, 4), sb: Any = (64, 6), **options: Any) -> Any:
    words = [np.zeros(shape, np.uint32) for shape in (a, b)]
    scales = [np.zeros(shape, np.uint8) for shape in (sa, sb)]
    return multiply, (*words, *scales, options.pop("dtypes", (E4M3, E4M3)), options)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"a": (64, 3), "sa": (64, 3)}, errors.OperandShapeError, "even"),
        ({"a": (48, 4), "b": (48, 6)}, errors.OperandShapeError, "whole quadrants of 32"),
        ({"b": (32, 6)}, errors.OperandShapeError, "dimension K"),
        ({"sa": (8, 4)}, errors.OperandShapeError, "the scales of 64 need 36"),
        ({"sb": (64, 5)}, errors.OperandShapeError, "5 scales per partition, `moving` has 6"),
        ({"starts": (0, 3)}, errors.RuleError, "0, 4, 8 or 12"),
        ({"out": nl.float16}, errors.OperandDtypeError, "bfloat16, float32"),
        ({"keywords": {"tile_size": (64, 64), "tile_position": (0, 0)}}, errors.LimitError, "all columns"),
        ({"keywords": {"tile_size": (64, 128), "tile_position": (0, 32)}}, errors.RuleError, "columns 32"),
        ({"keywords": {"tile_size": (32, 128), "tile_position": (0, 0)}}, errors.RuleError, "K = 64"),
        ({"keywords": {"tile_size": (64, 128)}}, errors.RuleError, "two integers each"),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    kernel, arguments = shaped(**changes)
    with pytest.raises(error) as raised:
        nki.simulate(kernel, target="trn3")(*arguments)
    assert words in str(raised.value)
    assert raised.value.remedy  # type: ignore[attr-defined]


def test_dst_must_fit() -> None:
    @nki.jit
    def kernel(a, s):
        tile = mx.load_packed(a, E4M3)
        nisa.nc_matmul_mx(psum((2, 3)), tile, tile, load(s), load(s))

    with pytest.raises(errors.OperandShapeError, match=r"must have shape \[2, 2\]"):
        kernel.ir(np.zeros((32, 2), np.uint32), np.zeros((4, 2), np.uint8), target="trn3")


@pytest.mark.parametrize(("dtype", "most"), [(nl.float32, 4096), (nl.bfloat16, 8192)])
def test_rule_119_free_size_of_moving(dtype: Any, most: int) -> None:
    for size in (most, most + 1):
        kernel, arguments = shaped(a=(32, 2), sa=(4, 2), b=(32, size), sb=(4, size), out=dtype)
        if size == most:
            kernel.ir(*arguments, target="trn3")
            continue
        with pytest.raises(errors.NkiValidationError):  # PSUM itself holds no more
            kernel.ir(*arguments, target="trn3")


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_not_before_trn3(target: str) -> None:
    kernel, arguments = shaped()
    with pytest.raises(errors.TargetError, match="trn3 and later"):
        kernel.ir(*arguments, target=target)


def test_cost() -> None:
    """As long as a bfloat16 product of the same columns, with four times the contraction."""
    kernel, arguments = shaped(a=(128, 128), b=(128, 512), sa=(128, 128), sb=(128, 512))
    (node,) = staged(kernel, "nc_matmul_mx", *arguments, target="trn3")
    load_phase, multiply_phase = node.cost(get_target("trn3"))
    assert load_phase.interval == 32 and multiply_phase.interval == 512
