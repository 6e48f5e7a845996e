"""`nki_lib.linear_cross_entropy`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.common.arguments import autocast
    from nki_lib.loss.cross_entropy.op import Options, check_options
    from nki_lib.loss.linear_cross_entropy.op import CHECKS, OPERATOR


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
) -> Tensor:
    """`nki_lib.cross_entropy` of the logits x weight^T, which are never stored: the last layer and the loss in one.

    x: [..., H], float32, bfloat16 or float16. weight: [V, H] of the same dtype, as `torch.nn.Linear` keeps it.
    target: [...] in int64 or int32, a class of each row, or ignore_index, which gives 0 and no gradient.
    The others are those of `nki_lib.cross_entropy`.

    Returns float32: a scalar, or [...] for "none". The logits of the loss are float32 sums. The gradients of x and
    weight make the logits of at most 2048 rows at a time again, in float32; the slopes of the loss by the logits are
    rounded to the dtype of x.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd. Under `torch.autocast` x and weight
    are cast.
    Raises ShapeError, DtypeError or ArgumentError naming the argument, also for a target that is no class;
    MissingExtraError without PyTorch.

    Example: nki_lib.linear_cross_entropy(torch.randn(77, 64), torch.randn(32000, 64), torch.randint(32000, (77,)))
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.linear_cross_entropy needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.loss.linear_cross_entropy.kernel",
        )
    CHECKS.required(x=x, weight=weight, target=target)
    CHECKS.places(x=x, weight=weight, target=target)
    options = {
        "ignore_index": ignore_index,
        "label_smoothing": label_smoothing,
        "softcap": softcap,
        "z_loss": z_loss,
    }
    check_options(CHECKS, reduction, Options(**options))
    x, weight = autocast(x, weight)
    if x.dim() == 0:
        raise CHECKS.error(errors.ShapeError, "x", x, "at least one dimension, the width")
    CHECKS.shape("target", target, tuple(x.shape[:-1]), "that of x without the width")
    flat = target.reshape(-1)
    loss, _ = OPERATOR(x.reshape(flat.shape[0], x.shape[-1]), weight, flat, **options)
    if reduction == "none":
        return loss.view(target.shape)
    return loss.sum() if reduction == "sum" else loss.sum() / (flat != ignore_index).sum()
