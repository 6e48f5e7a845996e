"""Checks of whole numbers, flags and what is to be trained, before PyTorch's schema of an operator fails on them."""

from __future__ import annotations

from numbers import Integral

import torch

from nki import errors
from nki_lib.common.arguments import Checks

INT64 = torch.iinfo(torch.int64)


def check_whole(checks: Checks, name: str, value: object, *, optional: bool = False) -> None:
    """A whole number that 64 bits hold, neither a bool nor a tensor; None too, if it is optional."""
    if value is None and optional:
        return
    allowed = f"{'None or ' if optional else ''}a whole number of up to 64 bits"
    if isinstance(value, bool) or not isinstance(value, (int, Integral, torch.SymInt)):
        raise checks.error(errors.ArgumentError, name, f"{type(value).__name__} {value!r}", allowed)
    if not INT64.min <= value <= INT64.max:
        raise checks.error(errors.ArgumentError, name, value, allowed)


def check_flags(checks: Checks, **flags: object) -> None:
    """True or False each."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise checks.error(
                errors.ArgumentError, name, f"{type(value).__name__} {value!r}", "True or False"
            )


def check_no_gradient(checks: Checks, why: str, remedy: str, **tensors: torch.Tensor | None) -> None:
    """That no gradient is wanted of any of them; {name} in the remedy becomes its name."""
    for name, tensor in tensors.items():
        if tensor is not None and torch.is_grad_enabled() and tensor.requires_grad:
            found = "a tensor that requires a gradient"
            raise checks.error(errors.NoBackwardError, name, found, why, remedy.format(name=name))
