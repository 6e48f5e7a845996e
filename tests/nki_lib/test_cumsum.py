"""Values and gradients of running sums: against float64 and exact integers, over shapes, dimensions and types."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.reduction.cumsum.api import cumsum  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES  # noqa: E402
from tests.nki_lib.reduction_bounds import sum_bound  # noqa: E402
from tests.nki_lib.test_softmax import LAYOUTS, random  # noqa: E402


def exactly(x: Tensor, dim: int, reverse: bool) -> Tensor:
    """In the dtype of x: float64, or integers that wrap around."""
    if reverse:
        return x.flip(dim).cumsum(dim, dtype=x.dtype).flip(dim)
    return x.cumsum(dim, dtype=x.dtype)


def check(x: Tensor, dim: int, dtype: Any = None, reverse: bool = False) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = cumsum(x, dim, dtype=dtype, reverse=reverse)
    assert found.shape == x.shape and found.dtype == (dtype or x.dtype) and found.is_contiguous()
    wide = x.to(found.dtype).double().reshape(x.shape or 1)
    exact = exactly(wide, dim, reverse)
    turned = wide.flip(dim) if reverse else wide
    bound = sum_bound(turned, exact.flip(dim) if reverse else exact, dim, found.dtype)
    bound = bound.flip(dim) if reverse else bound
    assert ((found.double().reshape(exact.shape) - exact).abs() <= bound).all()
    return found


@given(data=st.data(), layout=st.sampled_from(LAYOUTS), reverse=st.booleans())
def test_any_call(data: st.DataObject, layout: Any, reverse: bool) -> None:
    shape = data.draw(st.lists(st.sampled_from((0, 1, 2, 5, 70, 130)), max_size=3))
    dim = data.draw(st.integers(-max(len(shape), 1), max(len(shape), 1) - 1))
    x = layout(random(*shape, dtype=data.draw(st.sampled_from(DTYPES))))
    check(x, dim, data.draw(st.sampled_from((None, *DTYPES))), reverse)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(2, 20000), (8200, 65), (3000, 3)])
def test_wide_and_short_lines(shape: tuple[int, int], reverse: bool) -> None:
    for dtype in DTYPES[:2]:
        check(random(*shape, dtype=dtype), 0 if shape == (8200, 65) else 1, reverse=reverse)


@given(data=st.data(), reverse=st.booleans())
def test_integers_are_exact_and_wrap_around(data: st.DataObject, reverse: bool) -> None:
    shape = (data.draw(st.sampled_from((1, 3, 130))), data.draw(st.sampled_from((1, 5, 64, 2100))))
    made = torch.randint(-(2**31), 2**31, shape, generator=torch.Generator().manual_seed(sum(shape)))
    dim = data.draw(st.sampled_from((0, 1)))
    x = made.int()
    assert torch.equal(cumsum(x, dim, reverse=reverse), exactly(x, dim, reverse))


def test_integers_to_and_from_floating_point() -> None:
    x = torch.tensor([[3, -1, 2**24 + 1]], dtype=torch.int32)
    assert torch.equal(cumsum(x, dtype=torch.float32), x.cumsum(-1, dtype=torch.float32))
    y = torch.tensor([1.9, -2.9, 100.0])
    assert torch.equal(cumsum(y, dtype=torch.int32), y.cumsum(-1, dtype=torch.int32))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_special_values_as_in_pytorch(value: float) -> None:
    for shape, dim in (((3, 9), 1), ((9, 70), 0), ((3, 9000), 1), ((200, 3), 1)):
        x = random(*shape)
        x[1, 2] = value
        found, expected = cumsum(x, dim), x.cumsum(dim)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [((7, 9), 1), ((3, 70, 65), 1), ((2, 9000), 1), ((), 0)])
def test_gradient_against_float64(shape: tuple[int, ...], dim: int, reverse: bool) -> None:
    x, grad = random(*shape).requires_grad_(), random(*shape)
    (found,) = torch.autograd.grad(cumsum(x, dim, reverse=reverse), x, grad)
    wide = grad.double().reshape(shape or 1)
    turned = wide if reverse else wide.flip(dim)
    exact = exactly(wide, dim, not reverse)
    bound = sum_bound(turned, exact if reverse else exact.flip(dim), dim, torch.float32)
    assert (
        (found.double().reshape(exact.shape) - exact).abs() <= (bound if reverse else bound.flip(dim))
    ).all()


def test_gradients_in_other_types_and_of_gradients() -> None:
    x = random(3, 9, dtype=torch.bfloat16).requires_grad_()
    (found,) = torch.autograd.grad(cumsum(x, dtype=torch.float32).square().sum(), x, create_graph=True)
    (true,) = torch.autograd.grad(x.cumsum(-1, dtype=torch.float32).square().sum(), x, create_graph=True)
    assert found.dtype == torch.bfloat16 and torch.allclose(found, true, rtol=2**-6)
    again = [torch.autograd.grad(g.square().sum(), x)[0] for g in (found, true)]
    assert torch.allclose(*again, rtol=2**-5)
