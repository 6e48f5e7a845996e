"""`nki_lib.AdamW`: an optimiser for `torch.nn` parameters whose steps are `nki_lib.adamw`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nki_lib.optimizer.adamw.checks import check_group, check_step
from nki_lib.optimizer.adamw.op import OPERATOR, as_tensor

LEFT_TO_TORCH = {
    "amsgrad": False,
    "foreach": None,
    "capturable": False,
    "differentiable": False,
    "fused": None,
    "decoupled_weight_decay": True,
}
"""Entries of a parameter group of `torch.optim.AdamW` that choose nothing here: kept so that state dicts fit both."""


class AdamW(Optimizer):
    """`torch.optim.AdamW` on the kernel: the same arguments, parameter groups and state dicts, to and from both.

    State of each parameter: `step`, a float32 scalar, and `exp_avg` and `exp_avg_sq` like the parameter.
    lr may be a tensor of one element. amsgrad is not there: a state dict that asks for it is an ArgumentError, as are
    numbers out of range. A step checks all its parameters before it writes the first.

    Example: optimizer = nki_lib.AdamW(model.parameters(), lr=3e-4); loss.backward(); optimizer.step()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
    ) -> None:
        method = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**method, **LEFT_TO_TORCH})
        for group in self.param_groups:
            check_group(group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Load, after a look at what is asked for."""
        for group in state["param_groups"]:
            for name, value in {"maximize": False, **LEFT_TO_TORCH}.items():
                group.setdefault(name, value)
            check_group(group)
        super().__setstate__(state)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step of every parameter that has a gradient; the loss of the closure, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        ready = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        for group, p in ready:
            check_group(group)
            check_step(p, self.state[p] or self._begun(p), as_tensor(group["lr"]))
        for group, p in ready:
            state = self.state[p]
            state["step"] += 1
            beta1, beta2 = group["betas"]
            OPERATOR(
                p,
                p.grad,
                state["exp_avg"],
                state["exp_avg_sq"],
                state["step"],
                as_tensor(group["lr"]),
                as_tensor(-1.0 if group["maximize"] else None),
                beta1=beta1,
                beta2=beta2,
                eps=group["eps"],
                weight_decay=group["weight_decay"],
            )
        return loss

    def _begun(self, p: Tensor) -> dict[str, Tensor]:
        """The state before the first step."""
        self.state[p] = {
            "step": torch.tensor(0.0, dtype=torch.float32, device="cpu"),
            "exp_avg": torch.zeros_like(p, memory_format=torch.preserve_format),
            "exp_avg_sq": torch.zeros_like(p, memory_format=torch.preserve_format),
        }
        return self.state[p]
