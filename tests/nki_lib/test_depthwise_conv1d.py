"""Values and gradients of the depthwise convolution: against float64, over shapes, paddings, layouts and types."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from nki_lib.sequence.depthwise_conv1d.api import depthwise_conv1d  # noqa: E402
from nki_lib.sequence.depthwise_conv1d.reference import depthwise_conv1d as reference  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, UNIT, product_error, stored, wide  # noqa: E402
from tests.nki_lib.sequence_bounds import convolution, convolution_error, slope_error  # noqa: E402
from tests.nki_lib.test_softmax import LAYOUTS, random  # noqa: E402


def check(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Any, padding: Any) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = depthwise_conv1d(x, weight, bias, activation=activation, padding=padding)
    used = (weight.shape[1] - 1, 0) if padding is None else padding
    wides = wide(x), wide(weight), wide(bias), used
    exact, error = convolution(*wides), convolution_error(*wides)
    if activation:
        exact, error = functional.silu(exact), 1.1 * error + 4 * UNIT * functional.silu(exact).abs()
    assert found.shape == exact.shape and found.dtype == x.dtype and found.is_contiguous()
    assert ((found.double() - exact).abs() <= stored(exact, error, x.dtype)).all()
    return found


@given(data=st.data(), layout=st.sampled_from(LAYOUTS), activation=st.sampled_from((None, "silu", "swish")))
def test_any_call(data: st.DataObject, layout: Any, activation: Any) -> None:
    batch, channels = data.draw(st.sampled_from((0, 1, 2))), data.draw(st.sampled_from((0, 1, 5, 130)))
    length, taps = data.draw(st.sampled_from((0, 1, 7, 70, 300))), data.draw(st.integers(1, 6))
    dtype = data.draw(st.sampled_from(DTYPES))
    padding = data.draw(st.sampled_from((None, (0, taps - 1), (taps - 1, 9), (taps + 3, 0))))
    x = layout(random(batch, channels, length, dtype=dtype))
    weight = random(channels, taps, dtype=data.draw(st.sampled_from((dtype, torch.float32))))
    bias = random(channels, dtype=dtype) if data.draw(st.booleans()) else None
    check(x, weight, bias, activation, padding)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_long_sequences_go_in_parts(dtype: Any) -> None:
    check(random(1, 3, 4500, dtype=dtype), random(3, 4, dtype=dtype), random(3), "silu", None)
    check(random(1, 3, 2050, dtype=dtype), random(3, 31, dtype=dtype), None, None, (15, 15))


def test_weight_of_a_convolution_module_and_the_reference() -> None:
    conv = torch.nn.Conv1d(6, 6, 4, groups=6, padding=3)
    x = random(2, 6, 20)
    found = depthwise_conv1d(x, conv.weight, conv.bias)
    assert torch.allclose(found, conv(x)[..., :20], atol=1e-5)
    assert torch.allclose(found, reference(x, conv.weight.squeeze(1), conv.bias, 3), atol=1e-5)


def test_a_sequence_in_two_pieces() -> None:
    x, weight, bias = random(2, 5, 30), random(5, 4), random(5)
    whole = depthwise_conv1d(x, weight, bias, activation="silu")
    later = depthwise_conv1d(x[..., 20:], weight, bias, activation="silu", initial_state=x[..., 17:20])
    assert torch.equal(later, whole[..., 20:])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_special_values_as_in_pytorch(value: float) -> None:
    x, weight = random(1, 5, 40), random(5, 4)
    x[0, 2, 11] = value
    for silu in (False, True):
        found = depthwise_conv1d(x, weight, activation="silu" if silu else None)
        expected = reference(x, weight, None, 3, 0, silu)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@given(
    silu=st.booleans(),
    length=st.sampled_from((1, 9, 130, 1100)),
    batch=st.sampled_from((1, 2)),
    padding=st.sampled_from((None, (0, 3), (1, 2), (5, 4))),
)
def test_gradients(silu: bool, length: int, batch: int, padding: Any) -> None:
    """As in `sequence_bounds`; those of bias and taps are sums over batch and positions."""
    tensors = [t.requires_grad_() for t in (random(batch, 5, length), random(5, 4), random(5))]
    used = (3, 0) if padding is None else padding
    out = depthwise_conv1d(*tensors, activation="silu" if silu else None, padding=padding)
    grad = random(*out.shape, spread=1.0)
    found = torch.autograd.grad(out, tensors, grad)
    x, weight, bias = (wide(t).requires_grad_() for t in tensors)
    sums = convolution(x, weight, bias, used)
    exact = torch.autograd.grad(functional.silu(sums) if silu else sums, (x, weight, bias), grad.double())
    error = convolution_error(x.detach(), weight.detach(), bias.detach(), used)
    error = slope_error(grad.double(), error) if silu else torch.zeros_like(grad.double())
    magnitudes = [t.detach().abs().requires_grad_() for t in (x, weight, bias)]
    total = convolution(*magnitudes, used)
    slope = 1.1 * grad.double().abs()
    carried = torch.autograd.grad(total, magnitudes, error, retain_graph=True)
    rounded = torch.autograd.grad(total, magnitudes, slope)
    for mine, true, more, size, terms in zip(found, exact, carried, rounded, (4, out.numel(), out.numel())):
        assert mine.dtype == torch.float32
        assert ((mine.double() - true).abs() <= more + product_error(terms, size) + 1e-37).all()


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_gradients_of_narrow_types(dtype: Any) -> None:
    """Float32 sums of the same numbers, rounded once to the tensors' types."""
    tensors = [
        t.requires_grad_() for t in (random(1, 5, 40, dtype=dtype), random(5, 4), random(5, dtype=dtype))
    ]
    out = depthwise_conv1d(*tensors, activation="silu")
    found = torch.autograd.grad(out.sum(), tensors)
    others = [t.detach().float().requires_grad_() for t in tensors]
    expected = torch.autograd.grad(depthwise_conv1d(*others, activation="silu").sum(), others)
    for mine, true, tensor in zip(found, expected, tensors):
        assert torch.equal(mine, true.to(tensor.dtype))


def test_some_need_no_gradient() -> None:
    x, weight = random(1, 5, 40), random(5, 4).requires_grad_()
    depthwise_conv1d(x, weight).sum().backward()
    assert weight.grad is not None and x.grad is None
