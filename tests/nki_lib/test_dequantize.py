"""`dequantize`: every code with every scale against tables made from the formats' bit layouts, and round trips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.quantization.dequantize.api import dequantize  # noqa: E402
from nki_lib.quantization.dequantize.reference import dequantize as reference  # noqa: E402
from nki_lib.quantization.quantize.api import quantize  # noqa: E402
from nki_lib.quantization.tensors import NIBBLES  # noqa: E402
from tests.nki_lib.narrow_formats import LAYOUTS, decoded, unpacked  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BLOCKS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1")


def typed(data: Any, format: str) -> Tensor:
    """Bytes as PyTorch's type of elements."""
    types = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e2m1": NIBBLES}
    name = next(name for name in types if name in format)
    return torch.from_numpy(np.ascontiguousarray(data)).view(types[name])


def narrowed(exact: Any, dtype: Any) -> Tensor:
    """float64 values rounded once; they fit float32, or are rounded to it first where that is exact or far below."""
    return torch.from_numpy(exact).to(torch.float32).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", BLOCKS)
def test_every_code_with_every_scale(format: str, dtype: Any) -> None:
    codes = np.arange(256, dtype=np.uint8)
    data = np.repeat(codes[None], 256, 0)
    packed = 2 if format == "mxfp4_e2m1" else 1
    scale = np.repeat(codes[:, None], 256 * packed // 32, 1)
    exact = decoded(unpacked(data) if packed == 2 else data, scale, LAYOUTS[format])
    found = dequantize(typed(data, format), torch.from_numpy(scale).view(torch.float8_e8m0fnu), dtype=dtype)
    assert torch.equal(found.isnan(), torch.from_numpy(np.isnan(exact)))
    expected = narrowed(exact, dtype)
    assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("format", ["float8_e4m3fn", "float8_e5m2"])
def test_every_code_with_scales_of_vectors(format: str) -> None:
    codes = np.repeat(np.arange(256, dtype=np.uint8)[None], 5, 0)
    scale = np.array([[1.0], [3.1], [1e-30], [2e30], [np.nan]], np.float32)
    with np.errstate(all="ignore"):
        expected = (LAYOUTS[format].table()[codes].astype(np.float32) * scale).astype(np.float32)
    found = dequantize(typed(codes, format), torch.from_numpy(scale))
    assert np.array_equal(found.numpy(), expected, equal_nan=True)


@given(
    format=st.sampled_from(tuple(LAYOUTS)),
    shape=st.sampled_from(((32,), (3, 64), (2, 32, 96), (129, 32), (1, 2080))),
    last=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
def test_round_trip(format: str, shape: Any, last: bool, dtype: Any) -> None:
    dim = -1 if last else len(shape) - 1 - (len(shape) == 3)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)
    data, scale = quantize(x, format, dim=dim)
    found = dequantize(data, scale, dim=dim, dtype=dtype)
    assert found.shape == x.shape and found.dtype == dtype and found.stride(dim) == 1
    assert torch.equal(found, reference(data, scale, format, dim, dtype))
    # An element keeps m bits after the first, or the spacing of the subnormal elements; clamping loses up to a quarter.
    layout = LAYOUTS[format]
    blocks = scale if scale.shape[dim] == 1 else scale.repeat_interleave(32, dim)
    spacing = float(layout.magnitudes()[1]) * blocks.float()
    step = 2.0 ** -(layout.mantissa_bits + 1) * x.float().abs()
    clamped = (x.float().abs() - layout.largest * blocks.float()).clamp(min=0)
    bound = torch.maximum(torch.maximum(step, spacing / 2), clamped) * (1 + 2.0**-6)
    assert ((found.float() - x.float()).abs() <= bound).all()


def test_bytes_and_strides() -> None:
    x = torch.randn(32, 64)
    for format in LAYOUTS:
        data, scale = quantize(x, format)
        expected = dequantize(data, scale)
        bytes_of = data.view(torch.uint8)
        plain = scale if scale.dtype == torch.float32 else scale.view(torch.uint8)
        assert torch.equal(dequantize(bytes_of, plain, format=format), expected)
        leading = (t.mT.contiguous().mT for t in (bytes_of, plain))
        assert torch.equal(dequantize(*leading, format=format), expected)
        assert torch.equal(dequantize(data.mT, scale.mT, dim=0), expected.mT)


def test_nothing_to_do() -> None:
    for format in LAYOUTS:
        for shape in ((0, 64), (3, 0)):
            assert dequantize(*quantize(torch.zeros(shape), format)).shape == torch.Size(shape)
