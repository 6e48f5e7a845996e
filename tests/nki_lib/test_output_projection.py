"""Values and gradients of the output projection: against float64, over shapes, layouts, types and what is added."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.attention.output_projection.api import output_projection  # noqa: E402
from nki_lib.attention.output_projection.kernel import output_projection as kernel  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, product_error, stored, wide  # noqa: E402

Tensors = tuple[Tensor, Tensor, Any, Any]


def call(
    sizes: tuple[int, int, int, int] = (2, 3, 9, 8),
    width: int = 20,
    dtype: Any = torch.float32,
    bias: bool = True,
    residual: bool = True,
) -> Tensors:
    """The arguments of a call; sizes are (B, Hq, S, D)."""
    batch, heads, length, depth = sizes
    generator = torch.Generator().manual_seed(sum(sizes) + width)
    shapes = (sizes, (width, heads * depth), (width,), (batch, length, width))
    attn, weight, b, r = (torch.randn(s, generator=generator).to(dtype) for s in shapes)
    return attn, weight, b if bias else None, r if residual else None


def exactly(attn: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    """The sum over heads of rows times the head's columns of the weight, and what is added."""
    batch, heads, length, depth = attn.shape
    result = attn.new_zeros(batch, length, weight.shape[0])
    for h in range(heads):
        result = result + torch.einsum("bsd,wd->bsw", attn[:, h], weight[:, h * depth : (h + 1) * depth])
    for added in (bias, residual):
        result = result if added is None else result + added
    return result


def check(*tensors: Any) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = output_projection(*tensors)
    exact = exactly(*(wide(t) for t in tensors))
    assert found.shape == exact.shape and found.dtype == tensors[0].dtype and found.is_contiguous()
    magnitude = exactly(*(None if t is None else wide(t).abs() for t in tensors))
    error = product_error(tensors[1].shape[1], magnitude)
    assert ((found.double() - exact).abs() <= stored(exact, error, found.dtype)).all()
    return found


@given(data=st.data())
def test_any_call(data: st.DataObject) -> None:
    lengths, depths = st.sampled_from((0, 1, 5, 130)), st.sampled_from((0, 1, 8, 96))
    sizes = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3), lengths, depths))
    width, dtype = data.draw(st.sampled_from((0, 1, 40, 520))), data.draw(st.sampled_from(DTYPES))
    check(*call(sizes, width, dtype, data.draw(st.booleans()), data.draw(st.booleans())))


def test_more_than_one_block_each_way() -> None:
    check(*call((1, 4, 520, 132), 530))


def test_layouts() -> None:
    attn, weight, bias, residual = call()
    same = check(attn, weight, bias, residual)
    strided = attn.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(check(strided, weight.mT.contiguous().mT, bias, residual.mT.contiguous().mT), same)
    check(attn[:, :, :1].expand(2, 3, 9, 8), weight, bias[:1].expand(20), residual[:1].expand(2, 9, 20))


def test_special_values_stay_in_their_row() -> None:
    attn, weight, bias, residual = call()
    attn[0, 1, 4, 2], residual[1, 2, 3] = float("nan"), float("inf")
    expected = exactly(attn, weight, bias, residual)
    assert torch.allclose(
        output_projection(attn, weight, bias, residual), expected, rtol=1e-4, atol=1e-4, equal_nan=True
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("added", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_gradients_against_float64(added: tuple[bool, bool], dtype: Any) -> None:
    tensors = call(dtype=dtype, bias=added[0], residual=added[1])
    mine = [None if t is None else t.requires_grad_() for t in tensors]
    exact = [None if t is None else t.detach().double().requires_grad_() for t in tensors]
    grad = torch.randn(2, 9, 20, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = torch.autograd.grad(output_projection(*mine), [t for t in mine if t is not None], grad)
    true = torch.autograd.grad(exactly(*exact), [t for t in exact if t is not None], grad.double())
    for a, b in zip(found, true):
        assert a.dtype == dtype and a.shape == b.shape
        assert (a.double() - b).abs().max() <= 4 * torch.finfo(dtype).eps * b.abs().max()


def test_gradient_of_the_gradient() -> None:
    """Of -1, 0 and 1: all numbers on the way are whole and below 2^24, so that float32 makes no error at all."""
    attn, weight = (t.round().clamp(-1, 1).requires_grad_() for t in call(bias=False, residual=False)[:2])
    seconds = []
    for result in (output_projection(attn, weight), attn.transpose(1, 2).reshape(2, 9, 24) @ weight.T):
        (first,) = torch.autograd.grad(result.square().sum(), attn, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), weight)[0])
    assert torch.equal(*seconds) and seconds[0].any()


def test_other_batches_stage_nothing_new() -> None:
    check(*call((1, 3, 64, 8)))
    before = len(kernel._cache)
    for batch, length in ((2, 30), (5, 12), (64, 1), (1, 33)):
        check(*call((batch, 3, length, 8)))
    assert len(kernel._cache) == before
