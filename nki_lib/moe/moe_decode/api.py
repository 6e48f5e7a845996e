"""`nki_lib.moe_decode`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.moe.moe_decode.op import CHECKS, OPERATOR, STYLES
    from nki_lib.moe.operator import prepared


def moe_decode(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    weights: Tensor,
    indices: Tensor,
    *,
    activation: str = "swiglu",
    gate_up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    alpha: float = 1.702,
    limit: float = 7.0,
    gate_up_scale: Tensor | None = None,
    down_scale: Tensor | None = None,
    shared_gate_up: Tensor | None = None,
    shared_down: Tensor | None = None,
    shared_gate: Tensor | None = None,
    first_expert: int | None = None,
    style: Literal["auto", "chosen", "all"] = "auto",
) -> Tensor:
    """The experts of a mixture-of-experts layer for a few tokens: up to 128 are one launch.

    y[t] = sum over j of weights[t, j] * (act(x[t] gate) * (x[t] up)) down, those of expert indices[t, j].

    The arguments but `style` are those of `nki_lib.moe_prefill`: x [T, H], gate_up [E, H, 2, I], down [E, I, H],
    weights and indices [T, k]; biases, scales of fp8 and of MX weights, a shared expert, a slice of the experts.
    style: "chosen" reads the weights of an expert if a token chose it, once for all tokens; "all" reads all weights and
      ignores results nobody asked for; "auto" is "all" if there are 8 choices or more for each expert, and moe_prefill
      for more than 128 tokens. Results agree within rounding, in all of them.

    Returns [T, H], contiguous, in the dtype of x, summed over experts in float32 and rounded once.
    Works in eager mode, under `torch.compile(fullgraph=True)` and, unless weights are quantised, with autograd: its
    backward pass is that of moe_prefill, which is the operator to train with.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; BoundsError for an index that is no expert;
    NoBackwardError from a backward pass with quantised weights; MissingExtraError without PyTorch.

    Example: nki_lib.moe_decode(x, gate_up, down, *nki_lib.router_topk(x @ router.mT, 8))
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.moe_decode needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.moe.moe_decode.kernel",
        )
    biases, scales = (gate_up_bias, down_bias), (gate_up_scale, down_scale)
    shared = (shared_gate_up, shared_down, shared_gate)
    options = {"activation": activation, "alpha": alpha, "limit": limit, "first_expert": first_expert}
    CHECKS.choice("style", style, STYLES)
    given = prepared(CHECKS, (x, gate_up, down, weights, indices, *biases, *scales, *shared), **options)
    return OPERATOR(*given, **options, style=style)
