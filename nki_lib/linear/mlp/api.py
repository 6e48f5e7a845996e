"""`nki_lib.mlp`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.common.arguments import autocast
    from nki_lib.linear.mlp.checks import CHECKS, Options, check_options
    from nki_lib.linear.mlp.op import OPERATOR


def mlp(
    x: Tensor,
    up: Tensor,
    down: Tensor,
    *,
    gate: Tensor | None = None,
    up_bias: Tensor | None = None,
    gate_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    activation: str = "silu",
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
    norm: str = "rms",
    eps: float = 1e-6,
    offset: float = 0.0,
    residual: Tensor | None = None,
    up_scale: Tensor | None = None,
    gate_scale: Tensor | None = None,
    down_scale: Tensor | None = None,
    limit: float | None = None,
) -> Tensor:
    """The MLP of a transformer block: act(n gate^T + b) * (n up^T + b) down^T + b + residual, n the normalised x.

    x: [..., H] of any strides. up, gate: [I, H], down: [H, I], as `torch.nn.Linear` keeps them; without a gate it is
    act(n up^T + b) down^T. up_bias, gate_bias: [I], down_bias: [H]. residual: [..., H]. All of one dtype: float32,
    bfloat16 or float16.
    activation: "silu", "gelu" (with the error function), "gelu_tanh", "relu" or "relu2", the square of relu.
    norm_weight: [H], float32, bfloat16 or float16: x is normalised first. norm: "rms", with weights offset +
    norm_weight, or "layer", with norm_bias [H]. eps: what is added under the root.
    up_scale, gate_scale: [I], down_scale: [H], float32: any of the weights may be float8_e4m3fn or float8_e5m2, with a
    scale for each of its rows.
    limit: bounds what the activation sees from above, and the product with up, biases included, to -limit ... limit;
    without a gate from above only.

    Returns [..., H], contiguous. Products are summed in float32; the normalised rows, the hidden layer and the result
    are rounded to the dtype of x.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: all tensors get gradients,
    unless weights are in 8 bits (NoBackwardError). Under `torch.autocast` all but scales and 8-bit weights are cast.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: nki_lib.mlp(h, m.up_proj.weight, m.down_proj.weight, gate=m.gate_proj.weight, norm_weight=w, residual=h)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.mlp needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.linear.mlp.kernel",
        )
    weights = {"up": up, "down": down, "gate": gate}
    biases = {"up_bias": up_bias, "gate_bias": gate_bias, "down_bias": down_bias}
    around = {"norm_weight": norm_weight, "norm_bias": norm_bias, "residual": residual}
    scales = {"up_scale": up_scale, "gate_scale": gate_scale, "down_scale": down_scale}
    CHECKS.required(x=x, up=up, down=down)
    CHECKS.places(x=x, **weights, **biases, **around, **scales)
    options: dict[str, Any] = {"activation": activation, "norm": norm, "eps": eps}
    options |= {"offset": offset, "limit": limit}
    check_options(Options(**options))
    products = autocast(x, *weights.values(), *biases.values(), norm_weight, norm_bias, residual)
    return OPERATOR(*products, *scales.values(), **options)
