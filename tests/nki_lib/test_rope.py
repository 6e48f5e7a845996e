"""Values and gradients of the rotary embedding: against float64, over shapes, layouts, tables and types."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.attention.rope.api import rope  # noqa: E402
from nki_lib.common import rows  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, stored, wide  # noqa: E402
from tests.nki_lib.projection_bounds import rotated, rotation_error  # noqa: E402


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape))).to(dtype)


def check(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = rope(x, cos, sin, interleaved=interleaved)
    assert found.shape == x.shape and found.dtype == x.dtype and found.is_contiguous()
    exact = rotated(wide(x), wide(cos), wide(sin), interleaved)
    error = rotation_error(wide(x), torch.zeros_like(exact), cos, sin, interleaved)
    assert ((found.double() - exact).abs() <= stored(exact, error, x.dtype)).all()
    return found


def tables(batch: int, length: int, width: int, dtype: Any = torch.float32) -> tuple[Tensor, Tensor]:
    """cos and sin that are no cosines: independent numbers, so that no entry can stand for another."""
    shape = (batch, length, width) if batch else (length, width)
    return random(*shape, dtype=dtype), (random(*shape) * 2 + 0.5).to(dtype)


LAYOUTS = (
    lambda x: x,
    lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    lambda x: torch.nn.functional.pad(x, (0, 3))[..., : x.shape[3]],
)


@given(data=st.data(), interleaved=st.booleans(), layout=st.sampled_from(LAYOUTS))
def test_any_call(data: st.DataObject, interleaved: bool, layout: Any) -> None:
    batch, heads = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    length, half = data.draw(st.sampled_from((0, 1, 2, 7, 130))), data.draw(st.sampled_from((1, 2, 16, 64)))
    x = random(batch, heads, length, 2 * half, dtype=data.draw(st.sampled_from(DTYPES)))
    width, shared = data.draw(st.sampled_from((half, 2 * half))), data.draw(st.booleans())
    cos, sin = tables(0 if shared or not batch else batch, length, width, data.draw(st.sampled_from(DTYPES)))
    check(layout(x), cos, sin, interleaved)


def test_more_rows_than_a_piece_and_heads_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE", 256)
    check(random(2, 3, 333, 8), *tables(0, 333, 4))
    check(random(1, 17, 3, 256), *tables(0, 3, 256), interleaved=True)


def test_expanded_inputs() -> None:
    x, (cos, sin) = random(1, 2, 5, 8), tables(1, 1, 4)
    check(x.expand(3, 2, 5, 8), cos.expand(3, 5, 4), sin.expand(3, 5, 4))


@pytest.mark.parametrize("interleaved", [False, True])
def test_real_angles_keep_lengths_and_turn_back(interleaved: bool) -> None:
    angles = torch.arange(20)[:, None] * 100.0 ** -(torch.arange(8) / 8)
    x = random(1, 2, 20, 16)
    turned = check(x, angles.cos(), angles.sin(), interleaved)
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-6)
    assert torch.equal(turned[:, :, 0], x[:, :, 0])
    assert torch.allclose(check(turned, angles.cos(), -angles.sin(), interleaved), x, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 3e38])
def test_special_values_as_in_pytorch(value: float) -> None:
    for interleaved in (False, True):
        x, (cos, sin) = random(1, 1, 6, 8), tables(0, 6, 8)
        x[0, 0, 2, 3] = value
        expected = rotated(wide(x), wide(cos), wide(sin), interleaved).float()
        found = rope(x, cos, sin, interleaved=interleaved)
        assert torch.allclose(found, expected, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("batch", "width"), [(0, 8), (0, 4), (2, 8), (2, 4)])
def test_gradients_against_float64(batch: int, width: int, interleaved: bool) -> None:
    inputs = [random(2, 3, 9, 8), *tables(batch, 9, width)]
    grad = random(2, 3, 9, 8) * 0.7
    ours = [t.clone().requires_grad_() for t in inputs]
    exact = [t.double().requires_grad_() for t in inputs]
    found = torch.autograd.grad(rope(*ours, interleaved=interleaved), ours, grad)
    expected = torch.autograd.grad(rotated(*exact, interleaved), exact, grad.double())
    for mine, true in zip(found, expected):
        assert mine.dtype == torch.float32 and torch.allclose(mine.double(), true, rtol=2e-6, atol=1e-5)


def test_gradient_of_the_gradient() -> None:
    x, (cos, sin) = random(1, 2, 3, 4).requires_grad_(), tables(0, 3, 4)
    sin.requires_grad_()
    (first,) = torch.autograd.grad(rope(x, cos, sin).square().sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(first.sum(), sin)
    (true,) = torch.autograd.grad(rotated(x, cos, sin).square().sum(), x, create_graph=True)
    assert torch.allclose(found, torch.autograd.grad(true.sum(), sin)[0], atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradient_in_narrow_types(dtype: Any) -> None:
    x, (cos, sin) = random(1, 2, 9, 8, dtype=dtype).requires_grad_(), tables(0, 9, 8)
    grad = random(1, 2, 9, 8, dtype=dtype)
    wide_x = x.detach().double().requires_grad_()
    (found,) = torch.autograd.grad(rope(x, cos, sin), x, grad)
    (true,) = torch.autograd.grad(rotated(wide_x, cos.double(), sin.double()), wide_x, grad.double())
    assert found.dtype == dtype
    assert ((found.double() - true).abs() <= torch.finfo(dtype).eps * true.abs() + 1e-5).all()
