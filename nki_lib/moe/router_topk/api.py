"""`nki_lib.router_topk`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.moe.router_topk.checks import CHECKS, Routing, check_kinds
    from nki_lib.moe.router_topk.op import OPERATOR


def router_topk(
    logits: Tensor,
    k: int,
    *,
    score: Literal["softmax", "topk_softmax", "sigmoid"] = "softmax",
    normalize: bool = True,
    bias: Tensor | None = None,
    groups: int | None = None,
    topk_groups: int | None = None,
    scale: float = 1.0,
    return_losses: bool = False,
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor]:
    """The k experts of every token, the best first, and their weights.

    logits: [T, E], float32, bfloat16 or float16, up to 512 experts. k: up to 32 of them. Of equal experts, the one
    with the lower index comes first. Choice and weights are computed in float32, whatever the dtype.
    score: what a weight is. "softmax": of all logits (Mixtral, Qwen3-MoE); "topk_softmax": of the chosen logits
    (GPT-OSS); "sigmoid": of each logit (DeepSeek-V3).
    normalize: divide the weights of a token by their sum; "topk_softmax" is so anyway. scale: multiplies them in the
    end.
    bias: [E], float32 or the dtype of logits, with "sigmoid": added to the scores for the choice, not for the weights.
    groups, topk_groups: with "sigmoid": the experts lie in `groups` equal groups, and only those of the `topk_groups`
    best are chosen from; a group counts as its two best scores (plus bias) together.
    return_losses: return the two losses of a router too.

    Returns weights [T, k] in the dtype of logits and indices [T, k] int64; with return_losses also two float32
    numbers, balance_loss and z_loss.
    balance_loss = E * sum over experts of f_e * P_e, as `load_balancing_loss_func` of Hugging Face: f_e, the tokens
    that chose e divided by T (not by T * k: the losses of an even router are k, not 1); P_e, the mean over tokens of
    softmax(logits)_e, with "sigmoid" of a score over the sum of the token's scores.
    z_loss = the mean over tokens of logsumexp(logits)^2. Without tokens both are 0.
    Weights and losses have gradients with respect to logits; f_e and the choice have none, and neither has bias.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: weights, indices = nki_lib.router_topk(torch.randn(100, 64), 8)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.router_topk needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.moe.router_topk.kernel",
        )
    CHECKS.required(logits=logits)
    CHECKS.places(logits=logits, bias=bias)
    options = {
        "score": score,
        "normalize": normalize,
        "groups": groups,
        "topk_groups": topk_groups,
        "scale": scale,
        "return_losses": return_losses,
    }
    check_kinds(Routing(k, **options))
    weights, indices, balance_loss, z_loss = OPERATOR(logits, k, bias, **options)
    return (weights, indices, balance_loss, z_loss) if return_losses else (weights, indices)
