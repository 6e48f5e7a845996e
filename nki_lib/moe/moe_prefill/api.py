"""`nki_lib.moe_prefill`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.moe.moe_prefill.op import CHECKS, OPERATOR
    from nki_lib.moe.operator import prepared


def moe_prefill(
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
) -> Tensor:
    """The experts of a mixture-of-experts layer for many tokens, none of which is dropped.

    y[t] = sum over j of weights[t, j] * (act(x[t] gate) * (x[t] up)) down, those of expert indices[t, j].

    x: [T, H], float32, bfloat16 or float16, of any strides. weights: [T, k], the same types; indices: [T, k], int32 or
    int64; a token may name an expert twice. `router_topk` makes both.
    gate_up: [E, H, 2, I], gate_up[:, :, 0] is the gate; down: [E, I, H]. Of the dtype of x, or quantised:
      float8_e4m3fn or float8_e5m2 with gate_up_scale [E, 2, I] and down_scale [E, H], float32;
      MX: scales of 32 elements each, float8_e8m0fnu or uint8, gate_up_scale [E, H/32, 2, I], down_scale [E, I/32, H],
      of fp8 elements as above, or of fp4 ones, two in a byte (uint8 or float4_e2m1fn_x2), the lower four bits first:
      gate_up [E, H/2, 2, I], down [E, I/2, H].
    gate_up_bias: [E, 2, I], down_bias: [E, H], of the dtype of x or float32.
    activation: "swiglu" silu(g) * u; "geglu" gelu(g) * u, "geglu_tanh" its approximation; "clamped_swiglu"
      g = min(g, limit), u = clamp(u, -limit, limit), (u + 1) * g * sigmoid(alpha * g).
    shared_gate_up: [H, 2, Is], shared_down: [Is, H]: an expert for all tokens, its rows times shared_gate [T] if given.
    first_expert: gate_up and down are those of experts first_expert ... first_expert + E - 1 only, and other indices
      give nothing: the results of all slices, the shared expert in one of them, add up to the layer's.

    Returns [T, H], contiguous, in the dtype of x, summed over experts in float32 and rounded once.
    Works in eager mode, under `torch.compile(fullgraph=True)` and, unless weights are quantised, with autograd.
    Under `torch.autocast` all but scales, 8-bit weights and what the router makes are cast.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; BoundsError for an index that is no expert;
    NoBackwardError from a backward pass with quantised weights; MissingExtraError without PyTorch.

    Example: nki_lib.moe_prefill(x, gate_up, down, *nki_lib.router_topk(x @ router.mT, 8))
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.moe_prefill needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.moe.moe_prefill.kernel",
        )
    biases, scales = (gate_up_bias, down_bias), (gate_up_scale, down_scale)
    shared = (shared_gate_up, shared_down, shared_gate)
    options = {"activation": activation, "alpha": alpha, "limit": limit, "first_expert": first_expert}
    given = prepared(CHECKS, (x, gate_up, down, weights, indices, *biases, *scales, *shared), **options)
    return OPERATOR(*given, **options)
