"""`quantize`: every bit of elements and scales against tables made from the formats' bit layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.quantization.quantize.api import quantize  # noqa: E402
from nki_lib.quantization.quantize.reference import quantize as reference  # noqa: E402
from tests.nki_lib.narrow_formats import (  # noqa: E402
    LAYOUTS,
    quantized_blocks,
    quantized_vectors,
    unpacked,
)

VECTORS = ("float8_e4m3fn", "float8_e5m2")
BLOCKS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def random(*shape: int, dtype: Any = torch.float32, spread: float = 0.0) -> Tensor:
    """Normal numbers, each times a power of two up to 2^spread or down to its inverse."""
    generator = torch.Generator().manual_seed(sum(shape))
    powers = (torch.rand(*shape, generator=generator) * 2 - 1) * spread
    return (torch.randn(*shape, generator=generator) * powers.round().exp2()).to(dtype)


def rows_of(tensor: Tensor, dim: int) -> Any:
    """Vectors along `dim` as rows of a NumPy array: bytes as uint8, numbers as float32."""
    last = tensor.movedim(dim, -1)
    last = last.view(torch.uint8) if last.element_size() == 1 else last.float()
    return last.reshape(-1, last.shape[-1]).numpy()


def as_rows(data: Tensor, scale: Tensor, format: str, dim: int) -> tuple[Any, Any]:
    """Elements, one to a byte, and scales as rows of NumPy arrays."""
    codes = rows_of(data, dim)
    return unpacked(codes) if format == "mxfp4_e2m1" else codes, rows_of(scale, dim)


def check(x: Tensor, format: str, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Run the operator; compare elements and scales with the tables, bit by bit, and the reference with both.

    Elements of a block that is not a number may be anything: its scale says so.
    """
    data, scale = quantize(x, format, dim=dim)
    layout = LAYOUTS[format]
    rows, (codes, scales) = rows_of(x, dim), as_rows(data, scale, format, dim)
    if format in VECTORS:
        expected, bytes_of = quantized_vectors(rows, layout)
    else:
        expected, bytes_of = quantized_blocks(rows.astype(np.float64), layout)
        broken = np.repeat(bytes_of == 255, 32, -1)
        expected = np.where(broken, codes, expected)
    assert np.array_equal(scales, bytes_of) and np.array_equal(codes, expected)
    theirs = reference(x, format, dim)
    for ours, other in zip((data, scale), theirs):
        assert ours.shape == other.shape and ours.dtype == other.dtype
    their_codes, their_scales = as_rows(*theirs, format, dim)
    their_codes = their_codes if format in VECTORS else np.where(broken, codes, their_codes)
    assert np.array_equal(their_scales, scales) and np.array_equal(their_codes, codes)
    return data, scale


LAYOUTS_IN_MEMORY = (
    lambda x: x,
    lambda x: x.mT.contiguous().mT,
    lambda x: torch.nn.functional.pad(x, (3, 2))[..., 3:-2],
)


@given(
    rows=st.sampled_from((1, 2, 5, 32, 64, 129)),
    blocks=st.sampled_from((1, 2, 3, 5, 67)),
    format=st.sampled_from(tuple(LAYOUTS)),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS_IN_MEMORY),
    spread=st.sampled_from((0.0, 3.0, 12.0)),
)
def test_any_rows(rows: int, blocks: int, format: str, dtype: Any, layout: Any, spread: float) -> None:
    check(layout(random(rows, 32 * blocks, dtype=dtype, spread=spread)), format)


@pytest.mark.parametrize("format", LAYOUTS)
def test_any_axis(format: str) -> None:
    x = random(32, 64, 96, dtype=torch.bfloat16)
    for dim in (0, 1, 2, -2):
        data, scale = check(x, format, dim)
        assert data.stride(dim) == scale.stride(dim) == 1
    check(x[0, 0], format)
    check(x[:1].expand(3, 64, 96), format, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("format", BLOCKS)
def test_every_code_every_midpoint_and_their_neighbours(format: str, dtype: Any) -> None:
    """The largest power of two leads each block, so that its scale is 2^shift and the values meet the codes."""
    layout = LAYOUTS[format]
    table = layout.magnitudes()
    table = table[np.isfinite(table)]
    middles = (table[1:] + table[:-1]) / 2
    points = torch.tensor(np.concatenate([table, middles, [layout.largest * 1.05]])).to(dtype)
    near = [points, torch.nextafter(points, points + 1), torch.nextafter(points, points - 1)]
    values = torch.cat([*near, *[-p for p in near]])
    values = torch.nn.functional.pad(values, (0, -values.numel() % 31)).view(-1, 31)
    leading = torch.full((len(values), 1), 2.0**layout.exponent, dtype=dtype)
    keep = values.abs() < 2.0 ** (layout.exponent + 1)
    blocks = torch.cat([leading, values.where(keep, 0)], 1)
    for shift in (-90, -3, 0, 100):
        _, scale = check(blocks * 2.0**shift, format)
        assert (scale.view(torch.uint8) == 127 + shift).all()


@pytest.mark.parametrize("format", VECTORS)
def test_every_code_and_midpoint_with_a_scale_of_vectors(format: str) -> None:
    layout = LAYOUTS[format]
    table = layout.magnitudes()
    table = torch.tensor(table[np.isfinite(table)]).float()
    points = torch.cat([table, (table[1:] + table[:-1]) / 2])
    points = torch.cat([points, torch.nextafter(points, points + 1), torch.nextafter(points, points * 0)])
    points = points[points <= layout.largest]
    for factor in (1.0, 3.0, 0.1):
        check(torch.cat([points, -points])[None] * factor, format)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_and_what_is_nearly_zero(dtype: Any) -> None:
    zeros = torch.zeros(3, 64, dtype=dtype)
    zeros[1] = -0.0
    zeros[2, 40] = torch.finfo(dtype).smallest_normal / 4  # subnormal
    zeros[2, 41] = -torch.finfo(dtype).smallest_normal
    for format in LAYOUTS:
        data, scale = check(zeros, format)
        assert (scale[:2].float() == (1 if format in VECTORS else 2.0**-127)).all()
        assert (data.view(torch.uint8)[0] == 0).all()
        assert (data.view(torch.uint8)[1] == (0x88 if format == "mxfp4_e2m1" else 0x80)).all()


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_block_with_nan_or_infinity_is_nan_alone(value: float) -> None:
    x = random(4, 96)
    x[1, 40] = value
    for format in BLOCKS:
        data, scale = check(x, format)
        bytes_of = scale.view(torch.uint8)
        assert bytes_of[1, 1] == 255 and (bytes_of == 255).sum() == 1
        if format != "mxfp4_e2m1":
            assert data[1, 32:64].float().isnan().all()
    for format in VECTORS:
        data, scale = quantize(x, format)
        assert (data.float() * scale)[1].isnan().all() and (data.float() * scale).isnan().sum() == 96
        others = [0, 2, 3]
        assert torch.equal(scale[others], quantize(x[others], format)[1])


def test_the_largest_values_of_float32_and_long_rows() -> None:
    x = random(2, 20_000)
    x[0, 7], x[1, 19_999] = torch.finfo(torch.float32).max, -torch.finfo(torch.float32).max
    for format in VECTORS:
        check(x, format)
    for format in BLOCKS:
        check(x[:, :4096], format)


def test_nothing_to_do() -> None:
    for format in LAYOUTS:
        for shape in ((0, 64), (3, 0), (0,)):
            data, scale = quantize(torch.zeros(shape), format)
            assert data.numel() == 0 and scale.shape[:-1] == torch.Size(shape[:-1])
            theirs = reference(torch.zeros(shape), format)
            assert data.shape == theirs[0].shape and scale.shape == theirs[1].shape
