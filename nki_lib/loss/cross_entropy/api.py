"""`nki_lib.cross_entropy`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    import torch

    from nki_lib.common.kinds import check_no_gradient
    from nki_lib.loss.cross_entropy.op import CHECKS, OPERATOR, Options, check_options


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
) -> Tensor:
    """-log softmax(logits)[target], as `torch.nn.functional.cross_entropy` with the classes last.

    logits: [..., V] in float32, bfloat16 or float16; contiguous ones are read as they lie.
    target: [...] in int64 or int32, a class of each row, or ignore_index, which gives 0 and no gradient.
    weight: [V], of each class; a mean is then divided by the sum of the weights of the targets.
    reduction: "mean" over the rows that count (NaN if none does), "sum", or "none".
    label_smoothing: this share of the target is spread evenly over all classes.
    softcap: the logits are softcap * tanh(logits / softcap).
    z_loss: z_loss * lse^2 is added to each row that counts, lse being its log sum exp; class weights leave it alone.

    Returns float32, whatever the logits are: a scalar, or [...] for "none". Sums are made in float32. The softmax is
    never stored: the gradient of the logits makes it again, and is rounded once to their dtype.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd (of the logits).
    Raises ShapeError, DtypeError or ArgumentError naming the argument, also for a target that is no class;
    NoBackwardError for weights that require a gradient; MissingExtraError without PyTorch.

    Example: nki_lib.cross_entropy(torch.randn(2, 77, 32000), torch.randint(32000, (2, 77)))
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.cross_entropy needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.loss.cross_entropy.kernel",
        )
    CHECKS.required(logits=logits, target=target)
    CHECKS.places(logits=logits, target=target, weight=weight)
    options = {
        "ignore_index": ignore_index,
        "label_smoothing": label_smoothing,
        "softcap": softcap,
        "z_loss": z_loss,
    }
    check_options(CHECKS, reduction, Options(**options))
    _check(logits, target, weight)
    flat = target.reshape(-1)
    loss, _ = OPERATOR(
        logits.reshape(flat.shape[0], logits.shape[-1]),
        flat,
        weight,
        **options,
    )
    if reduction == "none":
        return loss.view(target.shape)
    return loss.sum() if reduction == "sum" else loss.sum() / _weight(flat, weight, ignore_index)


def _weight(target: Tensor, weight: Tensor | None, ignore_index: int) -> Tensor:
    """Of all rows that count."""
    counted = target != ignore_index
    if weight is None:
        return counted.sum()
    return torch.where(counted, weight.float()[torch.where(counted, target, 0).long()], 0.0).sum()


def _check(logits: Tensor, target: Tensor, weight: Tensor | None) -> None:
    if logits.dim() == 0:
        raise CHECKS.error(errors.ShapeError, "logits", logits, "at least one dimension, that of the classes")
    CHECKS.shape("target", target, tuple(logits.shape[:-1]), "that of logits without the classes")
    check_no_gradient(CHECKS, "weights that need no gradient", "pass weight.detach()", weight=weight)
