"""Values and gradients of rms_norm: against float64, over shapes, layouts, types, with and without a residual."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.norm.blocks import PART, ROW_BYTES  # noqa: E402
from nki_lib.norm.rms_norm.api import rms_norm  # noqa: E402
from nki_lib.norm.rms_norm.kernel import rms_norm as kernel  # noqa: E402
from nki_lib.norm.rms_norm.reference import rms_norm as reference  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, wide  # noqa: E402
from tests.nki_lib.norm_bounds import relative, rms_bound, rms_exact  # noqa: E402

EPS = 1e-5


def names(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def check(x: Tensor, weight: Tensor | None, residual: Tensor | None = None, offset: float = 0.0) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = rms_norm(x, weight, EPS, residual=residual, offset=offset)
    rows = x
    if residual is not None:
        found, rows = found
        assert torch.equal(rows, x + residual)
    exact = rms_exact(rows, weight, EPS, offset)
    assert found.shape == x.shape and found.dtype == x.dtype and found.is_contiguous()
    assert ((found.double() - exact).abs() <= rms_bound(exact, x.dtype, weight, offset)).all()
    return found


@given(data=st.data())
def test_any_call(data: st.DataObject) -> None:
    draw = data.draw
    shape = (*draw(st.lists(st.integers(0, 3), max_size=2)), draw(st.sampled_from((1, 2, 33, 130, 257))))
    if draw(st.booleans()):
        shape = (draw(st.sampled_from((129, 300))), shape[-1])
    dtype, weights = draw(st.sampled_from(DTYPES)), draw(st.sampled_from((None, *DTYPES)))
    weight = None if weights is None else random(shape[-1], dtype=weights)
    x = random(*shape, dtype=dtype) * draw(st.sampled_from((1e-3, 1.0, 30.0)))
    residual = random(*shape, dtype=dtype) if draw(st.booleans()) else None
    check(x, weight, residual, draw(st.sampled_from((0.0, 1.0))))


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
def test_rows_too_long_to_be_kept_whole(dtype: Any) -> None:
    width = ROW_BYTES // dtype.itemsize + PART // 2
    check(random(2, width, dtype=dtype), random(width, dtype=dtype), random(2, width, dtype=dtype))


def test_layouts() -> None:
    x, weight = random(4, 6, 40), random(40)
    same = check(x, weight, x)
    assert torch.equal(
        check(x.transpose(0, 1).contiguous().transpose(0, 1), weight.repeat(2)[::1][:40], x), same
    )
    check(x[:, :1].expand(4, 6, 40), weight[:1].expand(40), x.mT.contiguous().mT)
    check(x[..., ::2], weight[::2])
    check(x[0, 0], weight)


def test_special_values_stay_in_their_row() -> None:
    x, weight = random(3, 40), random(40)
    x[0, 3], x[1, 5] = float("nan"), float("inf")
    assert torch.allclose(rms_norm(x, weight, EPS), reference(x, weight, eps=EPS), equal_nan=True)


def test_as_hugging_face_within_two_units() -> None:
    """Their norm is rounded before it is multiplied by a float32 or bfloat16 weight."""
    x = random(64, 300, dtype=torch.bfloat16)
    for weight in (random(300), random(300, dtype=torch.bfloat16)):
        normal = rms_exact(x, None, EPS, 0.0).to(torch.bfloat16)
        theirs = (weight * normal).double()
        units = (rms_norm(x, weight, EPS).double() - theirs).abs() / theirs.abs()
        assert units.max() <= 2 * torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize("rows", [(2, 5), (300,)], ids=str)
def test_gradients_against_float64(rows: tuple[int, ...], dtype: Any) -> None:
    shape = (*rows, 48)
    x, residual = (random(*shape, dtype=dtype).requires_grad_() for _ in range(2))
    weight = random(48).requires_grad_()
    grads = [random(*shape, dtype=dtype), random(*shape, dtype=dtype) / 2]
    found = torch.autograd.grad(
        rms_norm(x, weight, EPS, residual=residual, offset=1.0), (x, weight, residual), grads
    )
    sums = wide((x + residual).detach()).requires_grad_()
    factor = wide(weight).requires_grad_()
    exact = reference(sums, factor, eps=EPS, offset=1.0)
    of_x, of_weight = torch.autograd.grad(exact, (sums, factor), wide(grads[0]))
    of_x = of_x + wide(grads[1])
    assert torch.equal(found[0], found[2]) and found[0].dtype == dtype
    unit = torch.finfo(dtype).eps
    assert ((wide(found[0]) - of_x).abs() <= (unit + 8 * relative(48)) * of_x.abs().max()).all()
    magnitude = (wide(grads[0]) * exact.detach() / (1 + factor.detach())).abs().flatten(0, -2).sum(0)
    assert ((wide(found[1]) - of_weight).abs() <= 2 * relative(max(48, x[..., 0].numel())) * magnitude).all()


def test_gradients_of_some() -> None:
    x, weight = random(5, 40).requires_grad_(), random(40)
    (found,) = torch.autograd.grad(rms_norm(x, weight).sum(), x)
    (true,) = torch.autograd.grad(reference(x, weight).sum(), x)
    assert torch.allclose(found, true, atol=1e-5)
    _, sums = rms_norm(x, residual=x.detach())
    assert torch.equal(torch.autograd.grad(sums.sum(), x)[0], torch.ones(5, 40))
    assert rms_norm(x, residual=x)[0].requires_grad and not rms_norm(x.detach(), weight).requires_grad


@pytest.mark.parametrize("width", [ROW_BYTES // 4 + 40])
def test_gradients_of_long_rows(width: int) -> None:
    x, weight = random(3, width).requires_grad_(), random(width).requires_grad_()
    grad = random(3, width) / 3
    found = torch.autograd.grad(rms_norm(x, weight), (x, weight), grad)
    true = torch.autograd.grad(reference(x.double(), weight.double()), (x, weight), grad.double())
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, true))


def test_other_batches_stage_nothing_new() -> None:
    weight = random(40)
    check(random(64, 40), weight)
    before = len(kernel._cache)
    for shape in ((2, 30, 40), (5, 12, 40), (64, 1, 40), (33, 40)):
        check(random(*shape), weight)
    assert len(kernel._cache) == before
