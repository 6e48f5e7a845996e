"""`matmul_mx` against float64 products of factors decoded by tables: exactly where sums are, else within a bound.

A sum of K products of float32 numbers is off by less than (4 sqrt(K) + 4) u of the sum of magnitudes, u = 2^-24 (see
`projection_bounds.py`); a product of an fp8 or fp4 element by another, and by powers of two, is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

import nki  # noqa: E402
from nki_lib.linear.matmul_mx.api import matmul_mx  # noqa: E402
from nki_lib.linear.matmul_mx.kernel import matmul_mx as kernel  # noqa: E402
from nki_lib.linear.matmul_mx.reference import matmul_mx as reference  # noqa: E402
from nki_lib.quantization.quantize.api import quantize  # noqa: E402
from nki_lib.quantization.tensors import NIBBLES  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, product_error, stored  # noqa: E402
from tests.nki_lib.narrow_formats import LAYOUTS, decoded, quantized_blocks  # noqa: E402

FORMATS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1")
TYPES = dict(zip(FORMATS, (torch.float8_e4m3fn, torch.float8_e5m2, NIBBLES)))


def exact_factor(rows: int, depth: int, format: str) -> tuple[Tensor, Tensor, Any]:
    """Elements [rows, E], scales [rows, K / 32] and their values [rows, K] in float64.

    Values are multiples of 1/4 up to 4, or 6 in 4 bits, scales 1/2 to 2: sums of 700 products fit into 24 bits.
    """
    random = np.random.default_rng(rows + depth)
    layout = LAYOUTS[format]
    table = layout.table()
    with np.errstate(invalid="ignore"):
        usable = np.flatnonzero((np.abs(table) <= 6) & (table * 4 % 1 == 0))
        if format != "mxfp4_e2m1":
            usable = usable[np.abs(table[usable]) <= 4]
    codes = usable[random.integers(0, len(usable), (rows, depth))].astype(np.uint8)
    scales = random.integers(126, 129, (rows, depth // 32)).astype(np.uint8)
    data = codes[:, 0::2] | codes[:, 1::2] << 4 if format == "mxfp4_e2m1" else codes
    values = decoded(codes, scales, layout)
    return (
        torch.from_numpy(data).view(TYPES[format]),
        torch.from_numpy(scales).view(torch.float8_e8m0fnu),
        values,
    )


def leading(tensor: Tensor) -> Tensor:
    """The transpose of a matrix, contiguous: the contracted axis leads, and still holds the pairs of a byte."""
    return tensor.view(torch.uint8).mT.contiguous().view(tensor.dtype)


@given(
    rows=st.sampled_from((1, 2, 5, 128, 131)),
    depth=st.sampled_from((32, 96, 128, 512, 672)),
    columns=st.sampled_from((1, 2, 33, 128, 515)),
    format=st.sampled_from(FORMATS),
    a_format=st.sampled_from((None, *FORMATS)),
    rowwise=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    biased=st.booleans(),
)
def test_exact_sums(
    rows: int, depth: int, columns: int, format: str, a_format: Any, rowwise: bool, dtype: Any, biased: bool
) -> None:
    b, b_scale, b_values = exact_factor(columns, depth, format)
    weight = (b.mT, b_scale.mT) if rowwise else (leading(b), leading(b_scale))
    if a_format is None:
        # Every block has the magnitude 1, and elements that float8 holds with the scale of that.
        a_values = np.random.default_rng(depth).integers(-8, 9, (rows, depth)) / 8
        a_values[:, ::32] = 1
        a, a_scale = torch.from_numpy(a_values).to(dtype), None
    else:
        a, a_scale, a_values = exact_factor(rows, depth, a_format)
    bias = torch.arange(columns, dtype=torch.float32) / 4 - 8 if biased else None
    found = matmul_mx(a, *weight, a_scale=a_scale, bias=bias, dtype=dtype)
    exact = torch.from_numpy(a_values @ b_values.T)
    exact = exact if bias is None else exact + bias.double()
    assert found.shape == (rows, columns) and found.dtype == dtype and found.is_contiguous()
    assert torch.equal(found, exact.float().to(dtype))


@given(
    rows=st.sampled_from((1, 3, 140)),
    depth=st.sampled_from((64, 544, 2080)),
    columns=st.sampled_from((7, 200)),
    format=st.sampled_from(FORMATS),
    a_format=st.sampled_from(FORMATS[:2]),
    dtype=st.sampled_from(DTYPES),
)
def test_rounded_activations(
    rows: int, depth: int, columns: int, format: str, a_format: Any, dtype: Any
) -> None:
    """Each block of activations gets twice the scale of OCP; the rest is a product within its bound."""
    generator = torch.Generator().manual_seed(rows + depth)
    a = torch.randn(rows, depth, generator=generator).to(dtype)
    b, b_scale = quantize(torch.randn(columns, depth, generator=generator), format)
    narrow = a.to(torch.bfloat16) if dtype == torch.float32 else a
    layout = LAYOUTS[a_format]
    left = torch.from_numpy(decoded(*quantized_blocks(narrow.double().numpy(), layout, above=1), layout))
    right = torch.from_numpy(right_values(b, b_scale, format))
    found = matmul_mx(a, b.mT, b_scale.mT, a_format=a_format)
    exact = left @ right.mT
    error = product_error(depth, left.abs() @ right.abs().mT)
    assert found.dtype == dtype and ((found.double() - exact).abs() <= stored(exact, error, dtype)).all()
    options = {"a_format": a_format, "b_format": format, "dtype": torch.float64}
    assert torch.allclose(reference(a, b.mT, b_scale.mT, **options), exact, rtol=1e-12, atol=1e-12)


def right_values(data: Tensor, scale: Tensor, format: str) -> Any:
    """The values of a weight [N, E]."""
    codes = data.view(torch.uint8).numpy()
    if format == "mxfp4_e2m1":
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
    return decoded(codes, scale.view(torch.uint8).numpy(), LAYOUTS[format])


@pytest.mark.parametrize("rowwise", [True, False])
def test_more_than_one_block_each_way(rowwise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where panels do not fit, and are loaded again."""
    a, a_scale, a_values = exact_factor(600, 672, "mxfp8_e4m3")
    b, b_scale, b_values = exact_factor(530, 672, "mxfp4_e2m1")
    weight = (b.mT, b_scale.mT) if rowwise else (leading(b), leading(b_scale))
    exact = torch.from_numpy(a_values @ b_values.T)
    assert torch.equal(matmul_mx(a, *weight, a_scale=a_scale, dtype=torch.float32), exact.float())
    globals_of = kernel.func.__globals__
    monkeypatch.setitem(globals_of, "LEFT_BYTES", 1)
    monkeypatch.setitem(globals_of, "RIGHT_BYTES", 1)
    assert torch.equal(matmul_mx(a, *weight, a_scale=a_scale, dtype=torch.float32), exact.float())


@pytest.mark.parametrize("rowwise", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_the_generation_without_mx_computes_the_same(format: str, rowwise: bool) -> None:
    b, b_scale, b_values = exact_factor(33, 672, format)
    a, a_scale, a_values = exact_factor(5, 672, "mxfp8_e5m2")
    b, b_scale = (t.view(torch.uint8) if rowwise else leading(t).view(torch.uint8) for t in (b, b_scale))
    a, a_scale = a.view(torch.uint8), a_scale.view(torch.uint8)
    arguments = [t.numpy() for t in (a, a_scale, b, b_scale)]
    options = (None, "mxfp8_e5m2", format, not rowwise, "float32")
    found = nki.simulate(kernel, target="trn2")(*arguments, *options)
    assert np.array_equal(found, (a_values @ b_values.T).astype(np.float32))
    rows = np.random.default_rng(1).standard_normal((5, 672), np.float32)
    both = [nki.simulate(kernel, target=t)(rows, None, *arguments[2:], *options) for t in ("trn2", "trn3")]
    assert np.allclose(*both, rtol=1e-5, atol=1e-3)


def test_nan_and_infinity_spoil_only_their_row() -> None:
    b, b_scale = quantize(torch.randn(9, 96), "mxfp8_e4m3")
    a = torch.randn(5, 96)
    clean = matmul_mx(a, b.mT, b_scale.mT)
    a[2, 7], a[3, 90] = float("inf"), float("nan")
    found = matmul_mx(a, b.mT, b_scale.mT)
    assert found[2:4].isnan().all() and torch.equal(found[[0, 1, 4]], clean[[0, 1, 4]])


def test_leading_dimensions_strides_and_nothing_to_do() -> None:
    weight = [t.mT for t in quantize(torch.randn(9, 64), "mxfp8_e4m3")]
    a = torch.randn(2, 3, 64)
    found = matmul_mx(a, *weight)
    assert torch.equal(found.view(6, 9), matmul_mx(a.view(6, 64), *weight))
    assert torch.equal(matmul_mx(a[0, 0], *weight), found[0, 0])
    assert torch.equal(matmul_mx(a.transpose(0, 1), *weight), found.transpose(0, 1))
    assert torch.equal(matmul_mx(a[:, :1].expand(2, 3, 64), *weight)[:, 2], found[:, 0])
    bias = torch.arange(9.0)
    assert matmul_mx(torch.zeros(0, 64), *weight, bias=bias).shape == (0, 9)
    empty = torch.zeros(0, 9, dtype=torch.uint8)
    assert torch.equal(matmul_mx(torch.zeros(3, 0), empty, empty, bias=bias), bias.expand(3, 9))


def test_a_weight_that_is_neither_layout() -> None:
    b, b_scale = quantize(torch.randn(20, 64), "mxfp8_e5m2")
    a = torch.randn(3, 64)
    expected = matmul_mx(a, b.mT, b_scale.mT)[:, ::2]
    assert torch.equal(matmul_mx(a, b[::2].mT, b_scale[::2].mT), expected)
    assert torch.equal(matmul_mx(a, leading(b)[:, ::2], b_scale[::2].mT), expected)
