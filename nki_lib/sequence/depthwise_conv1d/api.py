"""`nki_lib.depthwise_conv1d`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    import torch

    from nki_lib.common.arguments import autocast
    from nki_lib.sequence.depthwise_conv1d.op import CHECKS, OPERATOR


def depthwise_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str | None = None,
    padding: Sequence[int] | None = None,
    initial_state: Tensor | None = None,
) -> Tensor:
    """A filter for each channel along the sequence: f(sum over k of weight[c, k] x[b, c, t - left + k] + bias[c]).

    x: [B, C, L] of any strides, float32, bfloat16 or float16.
    weight: [C, K] or [C, 1, K], as `torch.nn.Conv1d(C, C, K, groups=C)` has it, K up to 256; bias: [C] or None. Either
    in the dtype of x or in float32.
    activation: None; "silu" or "swish", x sigmoid(x), applied to the sum.
    padding: None for the causal convolution, K - 1 zeros before the sequence, so that y[t] sees x up to t; or
    (left, right), the numbers of zeros before and after it.
    initial_state: [B, C, K - 1], what came before the sequence, in place of the zeros; in the dtype of x. Only causal.

    Returns [B, C, L + left + right - K + 1], causal [B, C, L], in the dtype of x, contiguous, summed in float32 and
    rounded once. Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd; under `torch.autocast`
    all tensors are cast first.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: nki_lib.depthwise_conv1d(x, conv.weight, conv.bias, activation="silu")
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.depthwise_conv1d needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.sequence.depthwise_conv1d.kernel",
        )
    CHECKS.places(x=x, weight=weight, bias=bias, initial_state=initial_state)
    x, weight, bias, initial_state = autocast(x, weight, bias, initial_state)
    if weight.dim() == 3:
        CHECKS.shape("weight", weight, (weight.shape[0], 1, weight.shape[2]), "one filter for each channel")
        weight = weight.squeeze(1)
    if initial_state is not None:
        x, padding = continued(x, weight, padding, initial_state), (0, 0)
    return OPERATOR(x, weight, bias, activation=activation, padding=padding)


def continued(x: Tensor, weight: Tensor, padding: Sequence[int] | None, initial_state: Tensor) -> Tensor:
    """The sequence after what came before it. Dimensions: [B, C, L], state [B, C, K - 1] -> [B, C, L + K - 1]."""
    if padding is not None:
        allowed = "None, as there is an initial_state"
        raise CHECKS.error(errors.ArgumentError, "padding", repr(padding), allowed)
    CHECKS.tensor("x", x, "batch, channels, length")
    CHECKS.tensor("weight", weight, "channels, taps")
    CHECKS.tensor("initial_state", initial_state, "batch, channels, taps - 1", like=x)
    expected = (x.shape[0], x.shape[1], weight.shape[1] - 1)
    CHECKS.shape("initial_state", initial_state, expected, "batch and channels of x, taps - 1")
    return torch.cat([initial_state, x], -1)
