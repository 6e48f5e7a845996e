"""`nki_lib.matmul` with bias, activation and other types of the result, against float64; its gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from nki_lib.linear.matmul.api import matmul  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, UNIT, product_error, stored, wide  # noqa: E402

TRUE = {
    None: lambda x: x,
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "tanh": torch.tanh,
}
STEEPEST = 1.13  # the largest slope of all activations, that of gelu
CURVED = 0.81  # the largest second derivative, that of gelu_tanh


def random(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + seed)).to(dtype)


def bound(a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None, dtype: Any) -> Any:
    """The exact result, and how far from it the operator may be.

    The argument of the activation is off by the error of a product (`format_bounds.py`). The activation makes that
    at most 1.13 times as large, and adds its own: x times a number in [0, 1], or such a number, that is off by 8 u.
    """
    straight, magnitude = wide(a) @ wide(b), wide(a).abs() @ wide(b).abs()
    if bias is not None:
        straight, magnitude = straight + wide(bias), magnitude + wide(bias).abs()
    error, exact = product_error(a.shape[-1], magnitude), TRUE[activation](straight)
    if activation is not None:
        error = STEEPEST * error + 8 * UNIT * (straight.abs() + 1)
    return exact, stored(exact, error, dtype)


LAYOUTS = (
    lambda x: x,
    lambda x: x.mT.contiguous().mT,
    lambda x: functional.pad(x, (1, 2))[..., 1:-2],
)
SIZES = st.sampled_from((0, 1, 2, 5, 33, 64, 65, 128, 130, 300))


@settings(max_examples=60)
@given(
    sizes=st.tuples(SIZES, SIZES, SIZES),
    dtypes=st.tuples(*[st.sampled_from(DTYPES)] * 3),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 2),
    activation=st.sampled_from(tuple(TRUE)),
    with_bias=st.booleans(),
)
def test_any_call(sizes: Any, dtypes: Any, layouts: Any, activation: Any, with_bias: bool) -> None:
    m, k, n = sizes
    a, b = layouts[0](random(m, k, dtype=dtypes[0])), layouts[1](random(k, n, dtype=dtypes[0]) / 4)
    bias = random(n, dtype=dtypes[1]) if with_bias else None
    found = matmul(a, b, bias=bias, activation=activation, out_dtype=dtypes[2])
    assert found.shape == (m, n) and found.dtype == dtypes[2] and found.is_contiguous()
    exact, error = bound(a, b, bias, activation, dtypes[2])
    assert ((found.double() - exact).abs() <= error).all()


@pytest.mark.parametrize("layout", [0, 1])
def test_large_bfloat16(layout: int) -> None:
    """Transposes by DMA, panels of several lengths, wide and narrow blocks."""
    b = LAYOUTS[layout](random(1700, 600, dtype=torch.bfloat16) / 16)
    bias = random(600, dtype=torch.bfloat16)
    for m in (16, 100, 520):
        a = random(m, 1700, dtype=torch.bfloat16)
        exact, error = bound(a, b, bias, "silu", torch.bfloat16)
        assert ((matmul(a, b, bias=bias, activation="silu").double() - exact).abs() <= error).all()


@given(st.lists(st.integers(0, 4), min_size=0, max_size=3))
@settings(max_examples=15)
def test_leading_axes(leading: list[int]) -> None:
    a, b, bias = random(*leading, 3, 6), random(6, 5), random(5)
    for view in (a, a.transpose(0, -2), random(1, 6).expand(*leading, 3, 6)):
        for options in ({}, {"bias": bias}):
            found = matmul(view, b, **options)
            expected = view.double() @ b.double() + (bias if options else 0)
            assert found.shape == expected.shape and found.is_contiguous()
            assert torch.allclose(found.double(), expected, atol=1e-5)


def test_infinities_and_nan() -> None:
    a, b, bias = random(5, 40), random(40, 6), torch.zeros(6)
    a[2, 7], a[3, 1], bias[4] = float("inf"), float("nan"), float("-inf")
    for activation in ("relu", "sigmoid", "tanh"):
        found, expected = matmul(a, b, bias=bias, activation=activation), TRUE[activation](a @ b + bias)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("activation", TRUE)
def test_gradients(activation: str | None) -> None:
    """Gradients are products with g = weight act'(s), or sums of it.

    s is off by the error of a product, which changes act' by at most 0.81 times as much; act' itself is a dozen
    operations on terms no larger than |s| + 1, 16 u. (relu: no s is so near to 0.) The products carry that on.
    """
    a, b, bias = (random(*s).requires_grad_() for s in ((2, 7, 9), (9, 70), (70,)))
    weight = random(2, 7, 70, seed=1)
    found = torch.autograd.grad((matmul(a, b, bias=bias, activation=activation) * weight).sum(), (a, b, bias))
    doubles = [t.detach().double().requires_grad_() for t in (a, b, bias)]
    straight = doubles[0] @ doubles[1] + doubles[2]
    exact = torch.autograd.grad((TRUE[activation](straight) * weight).sum(), doubles, retain_graph=True)
    (g,) = torch.autograd.grad((TRUE[activation](straight) * weight).sum(), straight)
    rows, panel, shift = (t.detach().abs() for t in doubles)
    error = CURVED * product_error(9, rows @ panel + shift) + 16 * UNIT * (straight.detach().abs() + 1)
    error, size = (t.flatten(0, 1) for t in (weight.abs() * error, g.abs()))
    rows = rows.flatten(0, 1)
    bounds = (
        (error @ panel.T + product_error(70, size @ panel.T)).view(2, 7, 9),
        rows.T @ error + product_error(14, rows.T @ size),
        error.sum(0) + product_error(14, size.sum(0)),
    )
    for mine, true, off in zip(found, exact, bounds):
        assert mine.dtype == torch.float32
        assert ((mine.double() - true).abs() <= stored(true, off, torch.float32)).all()


def test_gradients_have_gradients_and_other_types() -> None:
    a, b = random(7, 9).requires_grad_(), random(9, 5).requires_grad_()
    for name, activation in TRUE.items():
        first = torch.autograd.grad(matmul(a, b, activation=name, bias=b[0]).sum(), a, create_graph=True)[0]
        true = torch.autograd.grad(activation(a @ b + b[0]).sum(), a, create_graph=True)[0]
        mine, theirs = (
            torch.autograd.grad(t.square().sum(), (a, b), allow_unused=True) for t in (first, true)
        )
        for x, y in zip(mine, theirs):
            assert torch.allclose(x if x is not None else 0 * a, y if y is not None else 0 * a, atol=1e-4)
    narrow = random(7, 9, dtype=torch.bfloat16).requires_grad_()
    weight = random(9, 5, dtype=torch.bfloat16).requires_grad_()
    matmul(narrow, weight, out_dtype=torch.float32, activation="relu").sum().backward()
    assert narrow.grad.dtype == weight.grad.dtype == torch.bfloat16


def test_gradient_beside_a_frozen_8_bit_weight() -> None:
    x, bias = random(6, 20).requires_grad_(), random(5).requires_grad_()
    weight, scale = random(20, 5).to(torch.float8_e4m3fn), torch.rand(5) + 0.5
    matmul(x, weight, bias=bias, b_scale=scale, activation="gelu").square().sum().backward()
    mine, x.grad, of_bias, bias.grad = x.grad, None, bias.grad, None
    functional.gelu(x @ weight.float() * scale + bias).square().sum().backward()
    assert torch.allclose(mine, x.grad, rtol=1e-4, atol=1e-4) and torch.allclose(
        of_bias, bias.grad, rtol=1e-4
    )
