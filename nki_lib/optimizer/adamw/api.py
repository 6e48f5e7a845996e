"""`nki_lib.adamw` and `nki_lib.AdamW`, the typed front doors of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from nki import errors

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from torch import Tensor

    from nki_lib.common.kinds import check_no_gradient
    from nki_lib.optimizer.adamw.checks import CHECKS, check_method, check_places
    from nki_lib.optimizer.adamw.op import OPERATOR, as_tensor
    from nki_lib.optimizer.adamw.optimizer import AdamW
else:

    class AdamW:  # type: ignore[no-redef]
        """What stands for the optimiser where PyTorch is not installed."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise _missing("nki_lib.AdamW")


__all__ = ["AdamW", "adamw"]


def _missing(name: str) -> errors.MissingExtraError:
    return errors.MissingExtraError(
        f"{name} needs PyTorch, which is not installed",
        remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: nki_lib.optimizer.adamw.kernel",
    )


def adamw(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: Tensor | int,
    *,
    lr: Tensor | float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    grad_scale: Tensor | float | None = None,
) -> None:
    """One step of AdamW as `torch.optim.AdamW` makes it: param, exp_avg and exp_avg_sq are written in place.

    param: any shape, float32, bfloat16 or float16; grad: the same shape, the dtype of param or float32.
    exp_avg, exp_avg_sq: the same shape, both the dtype of param or both float32; zeros before the first step.
    step: the number of this step, 1 for the first; it is not written. lr, step and grad_scale may be tensors of one
    element, whatever they are no program is staged anew.
    grad_scale: the gradient is divided by it; -1 maximises.
    What is written shares no memory with the others.

    Everything is computed in float32 and rounded once when it is stored. Tensors that lie densely in memory, all in the
    same order of axes, are written by the kernel itself; others through copies.
    Works in eager mode and under `torch.compile(fullgraph=True)`; it has no gradient.
    Raises ShapeError, DtypeError or ArgumentError naming the argument, before anything is written; NoBackwardError for
    a tensor that requires a gradient outside `torch.no_grad()`; MissingExtraError without PyTorch.

    Example: nki_lib.adamw(w, torch.randn_like(w), torch.zeros_like(w), torch.zeros_like(w), 1, lr=3e-4)
    """
    if not _HAS_TORCH:
        raise _missing("nki_lib.adamw")
    tensors = {"param": param, "grad": grad, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    given = {"step": step, "lr": lr, "grad_scale": grad_scale}
    check_places(**tensors, **given)
    check_method(betas, eps, weight_decay)
    wanted = {name: t for name, t in {**tensors, **given}.items() if isinstance(t, Tensor)}
    check_no_gradient(
        CHECKS, "tensors without a gradient: a step has none", "call it under torch.no_grad()", **wanted
    )
    method = {"beta1": betas[0], "beta2": betas[1], "eps": eps, "weight_decay": weight_decay}
    OPERATOR(*tensors.values(), *(as_tensor(number) for number in given.values()), **method)
