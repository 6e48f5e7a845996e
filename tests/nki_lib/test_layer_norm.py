"""Values and gradients of layer_norm: against float64, over shapes, layouts, types, with and without a residual."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.norm.blocks import PART, ROW_BYTES  # noqa: E402
from nki_lib.norm.layer_norm.api import layer_norm  # noqa: E402
from nki_lib.norm.layer_norm.kernel import layer_norm as kernel  # noqa: E402
from nki_lib.norm.layer_norm.reference import layer_norm as reference  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, wide  # noqa: E402
from tests.nki_lib.norm_bounds import layer_bound, layer_exact, relative  # noqa: E402

EPS = 1e-5


def names(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def check(x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None = None) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = layer_norm(x, weight, bias, EPS, residual=residual)
    rows = x
    if residual is not None:
        found, rows = found
        assert torch.equal(rows, x + residual)
    assert found.shape == x.shape and found.dtype == x.dtype and found.is_contiguous()
    error = (found.double() - layer_exact(rows, weight, bias, EPS)).abs()
    assert (error <= layer_bound(rows, weight, bias, EPS)).all()
    return found


@given(data=st.data())
def test_any_call(data: st.DataObject) -> None:
    draw = data.draw
    shape = (*draw(st.lists(st.integers(0, 3), max_size=2)), draw(st.sampled_from((1, 2, 33, 130, 600))))
    if draw(st.booleans()):
        shape = (draw(st.sampled_from((129, 700))), shape[-1])
    dtype, types = draw(st.sampled_from(DTYPES)), st.sampled_from((None, *DTYPES))
    vectors = [None if t is None else random(shape[-1], dtype=t) for t in (draw(types), draw(types))]
    x = random(*shape, dtype=dtype) + draw(st.sampled_from((0.0, 5.0)))
    check(x, *vectors, random(*shape, dtype=dtype) if draw(st.booleans()) else None)


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
def test_rows_too_long_to_be_kept_whole(dtype: Any) -> None:
    width = ROW_BYTES // dtype.itemsize + PART // 2
    weight, bias = random(width, dtype=dtype), random(width, dtype=dtype)
    check(random(2, width, dtype=dtype), weight, bias, random(2, width, dtype=dtype))


def test_layouts() -> None:
    x, weight, bias = random(4, 6, 40), random(40), random(40)
    same = check(x, weight, bias, x)
    assert torch.equal(check(x.transpose(0, 1).contiguous().transpose(0, 1), weight, bias, x), same)
    check(x[:, :1].expand(4, 6, 40), weight[:1].expand(40), bias, x.mT.contiguous().mT)
    check(x[..., ::2], weight[::2], bias[::2])
    check(x[0, 0], weight, bias)


def test_special_values_stay_in_their_row() -> None:
    x, weight = random(3, 40), random(40)
    x[0, 3], x[1, 5] = float("nan"), float("inf")
    expected = torch.nn.functional.layer_norm(x, (40,), weight, weight, EPS)
    assert torch.allclose(layer_norm(x, weight, weight, EPS), expected, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize("rows", [(2, 5), (300,)], ids=str)
def test_gradients_against_float64(rows: tuple[int, ...], dtype: Any) -> None:
    shape = (*rows, 48)
    x, residual = (random(*shape, dtype=dtype).requires_grad_() for _ in range(2))
    weight, bias = random(48).requires_grad_(), random(48).requires_grad_()
    grads = [random(*shape, dtype=dtype), random(*shape, dtype=dtype) / 2]
    outs = layer_norm(x, weight, bias, EPS, residual=residual)
    found = torch.autograd.grad(outs, (x, weight, bias, residual), grads)
    sums = wide((x + residual).detach()).requires_grad_()
    factor, shift = wide(weight).requires_grad_(), wide(bias).requires_grad_()
    exact = reference(sums, factor, shift, eps=EPS)
    true = torch.autograd.grad(exact, (sums, factor, shift), wide(grads[0]))
    of_x = true[0] + wide(grads[1])
    assert torch.equal(found[0], found[3]) and found[0].dtype == dtype
    unit = torch.finfo(dtype).eps
    assert ((wide(found[0]) - of_x).abs() <= (unit + 8 * relative(48)) * of_x.abs().max()).all()
    slope = wide(grads[0]).abs()
    magnitude = (slope * layer_exact(sums, None, None, EPS).abs()).flatten(0, -2).sum(0)
    error = 4 * relative(max(48, x[..., 0].numel()))
    assert ((wide(found[1]) - true[1]).abs() <= error * (magnitude + slope.flatten(0, -2).sum(0))).all()
    assert ((wide(found[2]) - true[2]).abs() <= error * slope.flatten(0, -2).sum(0)).all()


@pytest.mark.parametrize("which", [(True, False), (False, True), (False, False)], ids=str)
def test_gradients_of_some(which: tuple[bool, bool]) -> None:
    x = random(5, 40).requires_grad_()
    vectors = [random(40).requires_grad_() if there else None for there in which]
    leaves = [t for t in (x, *vectors) if t is not None]
    found = torch.autograd.grad(layer_norm(x, *vectors).square().sum(), leaves)
    true = torch.autograd.grad(reference(x, *vectors).square().sum(), leaves)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(found, true))


def test_gradients_of_long_rows() -> None:
    width = ROW_BYTES // 4 + 40
    x, weight, bias = (t.requires_grad_() for t in (random(3, width), random(width), random(width)))
    grad = random(3, width) / 3
    found = torch.autograd.grad(layer_norm(x, weight, bias), (x, weight, bias), grad)
    wider = [t.double() for t in (x, weight, bias)]
    true = torch.autograd.grad(reference(*wider), (x, weight, bias), grad.double())
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, true))


def test_other_batches_stage_nothing_new() -> None:
    weight = random(40)
    check(random(64, 40), weight, weight)
    before = len(kernel._cache)
    for shape in ((2, 30, 40), (5, 12, 40), (64, 1, 40), (33, 40)):
        check(random(*shape), weight, weight)
    assert len(kernel._cache) == before
