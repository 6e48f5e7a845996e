"""What may stand in for a module's forward, and the proof that it computes the same.

A module is recognised by what it holds, not by its class's name alone: models copy each other's classes and change a
detail. So every offer is tried on a few random rows before it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 5
LOUD = 50.0
_CLOSE = {torch.float32: 1e-5, torch.bfloat16: 2 * 2.0**-7, torch.float16: 2 * 2.0**-10}


@dataclass(frozen=True)
class Replacement:
    """An offer for one module.

    kernel: the front doors it runs, as the report names them. forward: takes the module and what its forward takes.
    example: makes small arguments. covers: the children that are no longer called; None: all.
    dense: makes results comparable whose order means nothing. tried: whether it must prove itself. loud: whether rows
    of large numbers are tried too, which show clamps; not where they would make different experts equally good.
    """

    kernel: str
    forward: Callable[..., Any]
    example: Callable[[nn.Module], tuple[Any, ...]]
    covers: tuple[str, ...] | None = None
    dense: Callable[[Any], Any] = lambda result: result
    tried: bool = True
    loud: bool = True


def random_rows(*shape: int, like: Tensor) -> Tensor:
    """Normally distributed numbers that do not touch PyTorch's global generator."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).to(like.dtype)


def untouched(module: nn.Module) -> bool:
    """Whether nothing listens to a module or replaces its forward: then nobody notices that it is not called."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "forward" not in module.__dict__ and not any(getattr(module, name) for name in hooks)


def obstacle(module: nn.Module, inner: Iterable[nn.Module]) -> str | None:
    """What speaks against any offer, before one is tried. inner: the modules that would no longer be called."""
    if "forward" in module.__dict__:
        return "its forward is replaced already"
    if not all(untouched(child) for child in inner):
        return "a module inside it has hooks or another forward, which would no longer be called"
    for part in module.modules():
        rates = {"p": part.p} if isinstance(part, nn.Dropout) else part.__dict__
        for name, rate in rates.items():
            if ("dropout" in name or name == "p") and isinstance(rate, float) and rate > 0:
                return f"it has a dropout of {rate}, which our kernels do not compute"
    if any(value.device.type != "cpu" for value in (*module.parameters(), *module.buffers())):
        return "its values are not on the CPU, so it cannot be tried"
    return None


def difference(module: nn.Module, offer: Replacement) -> str | None:
    """Why the offer cannot stand in for the module's forward; None if it can."""
    if not offer.tried:
        return None
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            for factor in (1.0, LOUD)[: 1 + offer.loud]:
                first, *others = offer.example(module)
                first = first * factor if first.is_floating_point() else first
                expected = offer.dense(type(module).forward(module, first, *others))  # without its hooks
                found = offer.dense(offer.forward(module, first, *others))
                why = _compare(expected, found, offer.kernel)
                if why is not None:
                    return why
    except Exception as error:  # whatever a stranger's module raises, it is left as it is
        return f"it cannot be tried: {type(error).__name__}: {str(error).splitlines()[0]}"
    finally:
        for part, flag in training.items():
            part.training = flag
    return None


def _compare(expected: Any, found: Any, kernel: str) -> str | None:
    ours, theirs = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
    if len(ours) != len(theirs):
        return f"it returns {len(theirs)} results, {kernel} {len(ours)}"
    for a, b in zip(ours, theirs):
        if a.shape != b.shape or a.dtype != b.dtype:
            return (
                f"it returns {b.dtype} of shape {list(b.shape)}, {kernel} {a.dtype} of shape {list(a.shape)}"
            )
        far = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
        size = max(b.double().abs().max().item(), 1.0) if b.numel() else 1.0
        if not far <= _CLOSE.get(b.dtype, 0.0) * size:
            return f"it computes something else than {kernel}: values differ by {far:.2g}"
    return None
