"""`nki_lib.selective_scan`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.sequence.selective_scan.op import CHECKS, OPERATOR


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The selective scan of Mamba: h[t] = exp(step[t] A) h[t-1] + step[t] B[t] u[t], y[t] = C[t] h[t] + D u[t].

    u, delta: [b, d, l] of any strides, float32, bfloat16 or float16. step is delta + delta_bias, through softplus if
    `delta_softplus`.
    A: [d, n] float32, n up to 128. B, C: [b, n, l], like u.
    D, delta_bias: [d] in the dtype of u or float32, or None.
    z: [b, d, l] like u, or None; y is multiplied by silu(z).

    Returns y [b, d, l] in the dtype of u, contiguous; with `return_last_state` (y, state), state [b, d, n] float32, the
    h after the last position. All is computed in float32 and y is rounded once.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: all tensors get gradients, the same
    bits at every run. That of z starts from y as rounded to the dtype of u.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: y = nki_lib.selective_scan(u, delta, -A_log.float().exp(), B, C, D, z, dt_proj.bias, delta_softplus=True)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.selective_scan needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.sequence.selective_scan.kernel",
        )
    CHECKS.places(u=u, delta=delta, A=A, B=B, C=C, D=D, z=z, delta_bias=delta_bias)
    y, ends, *_ = OPERATOR(u, delta, A, B, C, D, z, delta_bias, delta_softplus)
    return (y, ends[:, -1]) if return_last_state else y
