"""`nki_lib.qkv_projection`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.attention.qkv_projection.checks import CHECKS
    from nki_lib.attention.qkv_projection.op import OPERATOR
    from nki_lib.common.arguments import autocast


def qkv_projection(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    num_heads: int,
    num_kv_heads: int,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of hidden states, in one kernel: RMS norm, projection, bias, rotary embedding.

    x: [B, S, H] of any strides, float32, bfloat16 or float16.
    weight: [(Hq + 2 Hkv) D, H], as `torch.nn.Linear` keeps it, rows of the query heads first, then of the key heads,
    then of the value heads; bias: [(Hq + 2 Hkv) D]. Both of the dtype of x.
    num_heads, num_kv_heads: Hq and Hkv; D follows from weight.
    norm_weight: [H], of any of the three dtypes; if given, x / sqrt(mean(x^2) + eps) * norm_weight is projected.
    cos, sin: [S, D], [B, S, D] or of half width, of any of the three dtypes; if given, q and k are rotated as
    `nki_lib.rope` does, which explains `interleaved`. D is at most 512 then.

    Returns q [B, Hq, S, D], k and v [B, Hkv, S, D], contiguous, in the dtype of x. The normalised x is rounded to its
    dtype once; sums, bias and rotation are float32, and the results are rounded once.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd, for x, weight, bias and norm_weight;
    cos and sin have no gradient here (NoBackwardError).
    Under `torch.autocast` x, weight and bias are cast.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: q, k, v = nki_lib.qkv_projection(x, linear.weight, num_heads=8, num_kv_heads=2, cos=cos, sin=sin)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.qkv_projection needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.attention.qkv_projection.kernel",
        )
    CHECKS.places(x=x, weight=weight, bias=bias, norm_weight=norm_weight, cos=cos, sin=sin)
    x, weight, bias = autocast(x, weight, bias)
    options = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "eps": eps, "interleaved": interleaved}
    return OPERATOR(x, weight, bias, norm_weight, cos, sin, **options)
