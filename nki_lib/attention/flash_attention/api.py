"""`nki_lib.flash_attention`: the typed front door. It can be imported without PyTorch, but not called."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, overload

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    import torch

    from nki_lib.attention.flash_attention.arguments import CHECKS
    from nki_lib.attention.flash_attention.op import OPERATOR, OPERATOR_WITH_LSE
    from nki_lib.common.arguments import autocast


@overload
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    q_segment_ids: Tensor | None = None,
    kv_segment_ids: Tensor | None = None,
    return_lse: Literal[False] = False,
) -> Tensor: ...
@overload
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    q_segment_ids: Tensor | None = None,
    kv_segment_ids: Tensor | None = None,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    q_segment_ids: Tensor | None = None,
    kv_segment_ids: Tensor | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scores) v with scores = scale * q k^T, computed tile by tile on the NeuronCore that `nki` interprets.

    q: [B, Hq, Sq, D]; k, v: [B, Hkv, Sk, D] with Hq a multiple of Hkv and D <= 256; all float32, bfloat16 or float16,
    of any strides. Statistics are float32. The result has the shape and dtype of q and is contiguous. Query i stands
    at key i + Sk - Sq, so that the last query stands at the last key.
    causal: a query sees the keys up to its own.
    scale: 1/sqrt(D) by default.
    window: a query sees its own key, the window - 1 before it, and what `causal` does not hide after it.
    sinks: [Hq], for each head a score more in the denominator, which no value belongs to.
    softcap: scores become softcap * tanh(scores / softcap).
    bias: added to the scores after that; float, broadcast to [B, Hq, Sq, Sk]. It may hold -inf.
    key_padding_mask: [B, Sk], bool, True where a key may be seen.
    q_segment_ids, kv_segment_ids: [B, Sq] and [B, Sk], integers; only equal ids see each other.
    return_lse: also the log of the sum of exp(scores), sink included, [B, Hq, Sq] in float32.
    A query that sees no key gets zeros, and -inf (or its sink) as log sum exp.

    Gradients reach q, k, v, sinks and bias, in eager mode and under `torch.compile(fullgraph=True)`; they are the same
    bits in every run. That of a bias is summed in float32 over the dimensions in which it was repeated; it needs memory
    for the scores [Hq / Hkv, Sq, Sk] of one key head. Under `torch.autocast` q, k and v are cast.
    Raises ShapeError, DtypeError or ArgumentError for what it cannot compute, MissingExtraError without PyTorch.
    Example: nki_lib.flash_attention(torch.randn(1, 8, 77, 64), torch.randn(1, 2, 77, 64), torch.randn(1, 2, 77, 64))
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.flash_attention needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.attention.flash_attention.kernel",
        )
    extras = {
        "sinks": sinks,
        "bias": bias,
        "key_padding_mask": key_padding_mask,
        "q_segment_ids": q_segment_ids,
        "kv_segment_ids": kv_segment_ids,
    }
    CHECKS.places(q=q, k=k, v=v, **extras)
    CHECKS.numbers(scale, window, softcap)
    q, k, v = autocast(q, k, v)
    tensors = (q, k, v, *extras.values())
    numbers = {"causal": causal, "scale": scale, "window": window, "softcap": softcap}
    trained = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    if not (return_lse or trained):
        return OPERATOR(*tensors, **numbers)
    out, lse = OPERATOR_WITH_LSE(*tensors, **numbers)
    return (out, lse) if return_lse else out
