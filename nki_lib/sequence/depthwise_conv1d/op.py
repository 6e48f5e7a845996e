"""`torch.ops.nki_lib.depthwise_conv1d` and its gradient: checks, one launch for each batch element.

The sequence is filled up with zeros to one of a few lengths, so few programs serve all; their results are cut off.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op, run_into
from nki_lib.common.arguments import DTYPES, Checks
from nki_lib.common.rows import bucket, name_of
from nki_lib.sequence.depthwise_conv1d.backward import depthwise_conv1d_backward as backward_kernel
from nki_lib.sequence.depthwise_conv1d.kernel import MOST_TAPS
from nki_lib.sequence.depthwise_conv1d.kernel import depthwise_conv1d as kernel
from nki_lib.sequence.lengths import filled

CHECKS = Checks("depthwise_conv1d")
ACTIVATIONS = (None, "silu", "swish")
CAST = "cast it to that of x or to float32"


def _fake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str | None = None,
    padding: list[int] | None = None,
) -> Tensor:
    left, right = check_arguments(x, weight, bias, activation, padding)
    return x.new_empty(x.shape[0], x.shape[1], x.shape[2] + left + right - weight.shape[1] + 1)


@nki_op(
    "nki_lib::depthwise_conv1d",
    fake=_fake,
    schema="(Tensor x, Tensor weight, Tensor? bias=None, *, str? activation=None, int[]? padding=None) -> Tensor",
)
def depthwise_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str | None = None,
    padding: list[int] | None = None,
) -> Tensor:
    """The operator behind `nki_lib.depthwise_conv1d`, where the arguments are explained; weight is [C, K] here."""
    left, right = check_arguments(x, weight, bias, activation, padding)
    positions = x.shape[2] + left + right - weight.shape[1] + 1
    out = x.new_empty(x.shape[0], x.shape[1], positions)
    convolve_into(out, x, (weight, bias), (left, right), activation is not None, False)
    return out


def convolve_into(
    out: Tensor, x: Tensor, filters: tuple[Tensor, Tensor | None], padding: Any, silu: bool, flipped: bool
) -> None:
    """Write the convolution of x [B, C, L], in the dtype of `out` [B, C, T]."""
    if out.numel() == 0:
        return
    length = bucket(x.shape[2]) if x.shape[2] else 1
    rows, dtype = filled(x, length), name_of(out.dtype)
    for target, row in zip(out, rows):
        arguments = row, *filters, *padding, silu, flipped, dtype
        if length == x.shape[2]:
            run_into(target, kernel, *arguments)
        else:
            target.copy_(kernel(*arguments)[:, : out.shape[2]])


def check_arguments(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None, padding: Any
) -> tuple[int, int]:
    """Raise for what cannot be computed, naming the argument; else the zeros on either side."""
    CHECKS.tensor("x", x, "batch, channels, length")
    check_filters(x, weight, bias)
    if activation not in ACTIVATIONS:
        allowed = "None, 'silu' or 'swish', which are the same"
        raise CHECKS.error(errors.ArgumentError, "activation", repr(activation), allowed)
    taps = weight.shape[1]
    left, right = (taps - 1, 0) if padding is None else check_padding(padding)
    if x.shape[2] + left + right < taps - 1:
        allowed = f"at least {taps - 1} positions with the padding, for {taps} taps"
        raise CHECKS.error(errors.ShapeError, "x", x, allowed, "pad more, or pass padding=None")
    return left, right


def check_padding(padding: Any) -> tuple[int, int]:
    """Two numbers that are not negative."""
    found = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,)
    if len(found) != 2 or any(isinstance(n, bool) or not isinstance(n, (int, torch.SymInt)) for n in found):
        allowed = "None, or (left, right), two integers"
        raise CHECKS.error(errors.ArgumentError, "padding", repr(padding), allowed)
    if min(found) < 0:
        allowed = "numbers of zeros, at least 0"
        raise CHECKS.error(errors.ArgumentError, "padding", repr(padding), allowed, "cut x instead")
    return found


def check_filters(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Their shapes; their dtypes, that of x or float32."""
    for name, tensor, axes in (("weight", weight, "channels, taps"), ("bias", bias, "channels")):
        if tensor is None:
            continue
        if tensor.dtype not in DTYPES or tensor.dtype not in (x.dtype, torch.float32):
            raise CHECKS.error(errors.DtypeError, name, tensor, f"{x.dtype}, as x, or float32", CAST)
        if tensor.device != x.device:
            remedy = f"move it: {name}.to({str(x.device)!r})"
            raise CHECKS.error(errors.ArgumentError, name, tensor, f"{x.device}, as x", remedy)
        CHECKS.tensor(name, tensor, axes)
        if tensor.shape[0] != x.shape[1]:
            allowed = f"{x.shape[1]} channels, as x"
            raise CHECKS.error(errors.ShapeError, name, tensor, allowed)
    if not 1 <= weight.shape[1] <= MOST_TAPS:
        raise CHECKS.error(errors.ShapeError, "weight", weight, f"1 to {MOST_TAPS} taps")


def check_gradient(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Any
) -> tuple[int, int]:
    """Raise for what is no gradient of a result; else the zeros on either side."""
    left, right = check_arguments(x, weight, bias, None, padding)
    CHECKS.tensor("grad", grad, "batch, channels, positions", like=x)
    positions = x.shape[2] + left + right - weight.shape[1] + 1
    CHECKS.shape("grad", grad, (x.shape[0], x.shape[1], positions), "that of the result")
    return left, right


def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *, silu: bool, padding: list[int]
) -> list[Tensor]:
    check_gradient(grad, x, weight, bias, padding)
    sums = (*weight.shape[:1], weight.shape[1] + 1)
    return [x.new_empty(x.shape), x.new_empty(sums, dtype=torch.float32)]


@nki_op(
    "nki_lib::depthwise_conv1d_backward",
    fake=_fake_backward,
    schema="(Tensor grad, Tensor x, Tensor weight, Tensor? bias, *, bool silu, int[] padding) -> Tensor[]",
)
def depthwise_conv1d_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *, silu: bool, padding: list[int]
) -> list[Tensor]:
    """The gradient of x, and in float32 those of the taps and, after them, of the bias: [C, K + 1]."""
    (left, right), taps = check_gradient(grad, x, weight, bias, padding), weight.shape[1]
    of_x, sums = x.new_zeros(x.shape), torch.zeros(weight.shape[0], taps + 1, dtype=torch.float32)
    if x.numel() == 0 or grad.numel() == 0:
        return [of_x, sums]
    length, slopes = bucket(x.shape[2]), grad
    rows, given = filled(x, length), filled(grad, length + left + right - taps + 1)
    if silu:
        slopes = torch.empty(grad.shape, dtype=torch.float32)
    for i, row in enumerate(rows):
        found = backward_kernel(row, given[i], weight, bias, left, silu)
        if silu:
            slopes[i] = found[1][:, : grad.shape[2]]
        sums += found[0] if silu else found
    convolve_into(of_x, slopes, (weight, None), (taps - 1 - left, taps - 1 - right), False, True)
    return [of_x, sums]


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    x, weight, bias = inputs
    ctx.save_for_backward(x, weight, bias)
    ctx.silu = keyword_only_inputs["activation"] is not None
    padding = keyword_only_inputs["padding"]
    ctx.padding = [weight.shape[1] - 1, 0] if padding is None else list(padding)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias = ctx.saved_tensors
    of_x, sums = BACKWARD(grad, x, weight, bias, silu=ctx.silu, padding=ctx.padding)
    of_bias = None if bias is None else sums[:, -1].to(bias.dtype)
    needed = ctx.needs_input_grad
    return (of_x, sums[:, :-1].to(weight.dtype), of_bias)[: len(needed)]


depthwise_conv1d.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.depthwise_conv1d.default
"""What `nki_lib.depthwise_conv1d` calls."""
BACKWARD = torch.ops.nki_lib.depthwise_conv1d_backward.default
"""Its gradients."""
