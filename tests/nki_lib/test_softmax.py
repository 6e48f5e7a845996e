"""Values and gradients of softmax: against float64, over shapes, dimensions, layouts and types."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.reduction.softmax.api import softmax  # noqa: E402
from nki_lib.reduction.softmax.op import softmax_backward  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, stored  # noqa: E402
from tests.nki_lib.reduction_bounds import gradient_error, softmax_bound, softmax_error  # noqa: E402

LAYOUTS = (
    lambda x: x,
    lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]] if x.dim() else x,
    lambda x: x[:1].expand_as(x) if x.dim() and x.shape[0] else x,
)


def random(*shape: int, dtype: Any = torch.float32, spread: float = 3.0) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))
    return (spread * made).to(dtype)


def check(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = softmax(x, dim, dtype=dtype)
    given = x.to(found.dtype).double()
    assert found.shape == x.shape and found.dtype == (dtype or x.dtype) and found.is_contiguous()
    exact = torch.softmax(given, dim)
    if not x.numel():
        return found
    assert (
        (found.double() - exact).abs() <= softmax_bound(given.reshape(x.shape or 1), exact, dim, found.dtype)
    ).all()
    return found


@given(data=st.data(), layout=st.sampled_from(LAYOUTS))
def test_any_call(data: st.DataObject, layout: Any) -> None:
    sizes = st.sampled_from((0, 1, 2, 5, 70, 130))
    shape = data.draw(st.lists(sizes, max_size=3))
    dim = data.draw(st.integers(-max(len(shape), 1), max(len(shape), 1) - 1))
    x = layout(random(*shape, dtype=data.draw(st.sampled_from(DTYPES))))
    check(x, dim, data.draw(st.sampled_from((None, *DTYPES))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 9000), (8200, 3), (1, 33000), (8200, 65)])
def test_lines_in_parts(shape: tuple[int, int], dtype: Any) -> None:
    check(random(*shape, dtype=dtype), int(shape[0] > shape[1]) ^ 1)


def test_more_lines_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    from nki_lib.common import rows
    from nki_lib.reduction import along

    for module in (rows, along):
        monkeypatch.setattr(module, "PIECE", 128)
    check(random(300, 5), 1)
    check(random(2, 5, 300), 1)


SPECIAL = (float("nan"), float("inf"), float("-inf"))


@pytest.mark.parametrize("width", [6, 9000])
@pytest.mark.parametrize("value", SPECIAL)
def test_special_values_as_in_pytorch(value: float, width: int) -> None:
    for columns in (False, True):
        x = random(70, width)
        x[1, 2] = x[2, :] = x[3, : width // 2] = value
        x = x.T.contiguous() if columns else x
        dim = 0 if columns else 1
        found, exact = softmax(x, dim), torch.softmax(x.double(), dim)
        assert torch.equal(found.isnan(), torch.softmax(x, dim).isnan())
        bound = softmax_bound(x.double(), exact, dim, torch.float32)
        assert ((found.double() - exact).abs() <= bound)[~found.isnan()].all()


@pytest.mark.parametrize("width", [7, 8200])
@pytest.mark.parametrize("offset", [-1e30, 1e4, 3e38, torch.finfo(torch.float32).min])
def test_offsets_do_not_overflow(offset: float, width: int) -> None:
    x = torch.full((2, width), offset)
    assert torch.allclose(softmax(x), torch.full((2, width), 1 / width))


@pytest.mark.parametrize(
    ("shape", "dim"), [((7, 9), 1), ((3, 70, 65), 1), ((2, 5000), 1), ((4100, 64), 0), ((), 0)]
)
def test_gradient_against_float64(shape: tuple[int, ...], dim: int) -> None:
    x, grad = random(*shape).requires_grad_(), random(*shape, spread=1.0)
    wide = x.detach().double().requires_grad_()
    (found,) = torch.autograd.grad(softmax(x, dim), x, grad)
    exact = torch.softmax(wide, dim)
    (true,) = torch.autograd.grad(exact, wide, grad.double())
    if not shape:
        assert found == 0
        return
    error = softmax_error(wide.detach(), exact.detach(), dim)
    bound = gradient_error(exact.detach(), error, grad.double(), dim)
    assert found.dtype == torch.float32 and ((found.double() - true).abs() <= bound + 1e-37).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradient_kernel_in_narrow_types(dtype: Any) -> None:
    """Given y and the gradient as they are, the sum and the products are those of float32."""
    y, grad = torch.softmax(random(9, 130), 1).to(dtype), random(9, 130, dtype=dtype)
    exact = (grad.double() - (grad.double() * y.double()).sum(1, keepdim=True)) * y.double()
    error = gradient_error(y.double(), torch.zeros(9, 130).double(), grad.double(), 1)
    for result in (dtype, torch.float32):
        found = softmax_backward(y, grad, 1, result)
        assert (
            found.dtype == result and ((found.double() - exact).abs() <= stored(exact, error, result)).all()
        )


def test_gradient_reaches_the_dtype_of_x() -> None:
    x = random(3, 9, dtype=torch.bfloat16).requires_grad_()
    (found,) = torch.autograd.grad(softmax(x, dtype=torch.float32).square().sum(), x)
    (true,) = torch.autograd.grad(torch.softmax(x, -1, dtype=torch.float32).square().sum(), x)
    assert found.dtype == torch.bfloat16 and torch.allclose(found, true, rtol=2**-7, atol=1e-6)


def test_gradient_of_the_gradient() -> None:
    x = random(3, 5, spread=1.0).requires_grad_()
    grads = []
    for function in (softmax, torch.softmax):
        (first,) = torch.autograd.grad(function(x, 1).pow(3).sum(), x, create_graph=True)
        grads.append(torch.autograd.grad(first.square().sum(), x)[0])
    assert torch.allclose(*grads, rtol=1e-4, atol=1e-6)
