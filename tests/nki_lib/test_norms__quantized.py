"""8-bit results of the norms: elements and scales against the definition of the format, bit by bit."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.norm.layer_norm.api import layer_norm  # noqa: E402
from nki_lib.norm.rms_norm.api import rms_norm  # noqa: E402

LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
EXPONENT = {torch.float8_e4m3fn: 8, torch.float8_e5m2: 15}
STORED = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def microscaled(values: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    """Elements and scale bytes by the OCP definition, in float64. Dimensions: [R, H] -> [R, H], [R, H/32]."""
    blocks = values.double().unflatten(-1, (-1, 32)).numpy()
    most = np.abs(blocks).max(-1)
    _, exponent = np.frexp(most)  # most = m * 2^exponent, m in [1/2, 1)
    scale = np.where(most > 0, exponent - 1 - EXPONENT[dtype], -127).clip(-127, 127)
    limited = (blocks / 2.0 ** scale[..., None]).clip(-LARGEST[dtype], LARGEST[dtype])
    # From float32, which holds the quotients exactly, PyTorch rounds to nearest even.
    elements = torch.from_numpy(limited.astype(np.float32)).to(dtype)
    return elements.flatten(-2), torch.from_numpy((scale + 127).astype(np.uint8))


@given(data=st.data())
def test_mx_is_the_definition(data: st.DataObject) -> None:
    draw = data.draw
    rows, width, dtype = (
        draw(st.sampled_from((1, 5, 130))),
        draw(st.sampled_from((32, 96, 320))),
        draw(st.sampled_from(DTYPES)),
    )
    kind, norm = draw(st.sampled_from(sorted(STORED))), draw(st.sampled_from((rms_norm, layer_norm)))
    x, weight = random(rows, width, dtype=dtype), random(width).exp().square()
    weight[: width // 2] *= draw(st.sampled_from((1.0, 1e-30, 0.0)))
    plain = norm(x, weight)
    found, scale, sums = norm(x, weight, residual=torch.zeros_like(x), quantize=f"mxfp8_{kind}")
    elements, expected = microscaled(plain, STORED[kind])
    assert found.dtype == STORED[kind] and scale.dtype == torch.float8_e8m0fnu and torch.equal(sums, x)
    assert torch.equal(scale.view(torch.uint8), expected)
    assert torch.equal(found.view(torch.uint8), elements.view(torch.uint8))


def test_mx_of_what_is_no_number() -> None:
    x = random(4, 64)
    x[1, 40] = float("nan")
    data, scale = rms_norm(x, quantize="mxfp8_e4m3")
    assert torch.isnan(scale[1].float()).all() and not torch.isnan(scale[[0, 2, 3]].float()).any()
    plain_data, _ = rms_norm(x[2:], quantize="mxfp8_e4m3")
    assert torch.equal(data[2:].view(torch.uint8), plain_data.view(torch.uint8))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("norm", [rms_norm, layer_norm])
def test_a_scale_for_each_row(norm: Any, dtype: Any, kind: str) -> None:
    """The scale has two roundings; an element is off by half a unit of its own, three of float32 in front of it."""
    x = random(3, 43, 90, dtype=dtype)
    x[1, 7] = 0
    plain = norm(x, None).double()
    data, scale = norm(x, None, quantize=kind)
    stored = getattr(torch, kind)
    assert data.dtype == stored and data.shape == x.shape and scale.shape == (3, 43, 1)
    exact = plain.abs().amax(-1, keepdim=True) / LARGEST[stored]
    alive = exact > 0
    assert ((scale.double() - exact).abs() <= 2.0**-22 * exact)[alive].all()
    assert (data.float()[1, 7] == 0).all() and data.float().isfinite().all()
    info = torch.finfo(stored)
    half_unit = torch.maximum(
        plain.abs() * info.eps / 2, info.smallest_normal * info.eps / 2 * scale.double()
    )
    error = (data.double() * scale.double() - plain).abs()
    assert (error <= half_unit + 2.0**-20 * plain.abs()).all()
    assert (data.double().abs().amax(-1, keepdim=True) == LARGEST[stored])[alive].all()
