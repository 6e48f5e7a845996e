"""What the operators on experts share: their schema, what a front door asks, and what happens before a launch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from torch import Tensor

from nki_lib.common.arguments import autocast
from nki_lib.moe.arguments import ExpertChecks, Experts

ARGUMENTS = (
    "Tensor x, Tensor gate_up, Tensor down, Tensor weights, Tensor indices, Tensor? gate_up_bias=None, "
    "Tensor? down_bias=None, Tensor? gate_up_scale=None, Tensor? down_scale=None, Tensor? shared_gate_up=None, "
    "Tensor? shared_down=None, Tensor? shared_gate=None"
)
OPTIONS = 'str activation="swiglu", float alpha=1.702, float limit=7.0, int? first_expert=None'
NAMES = tuple(argument.split()[1].removesuffix("=None") for argument in ARGUMENTS.split(", "))
NEEDED = 5  # the first ones, which a call must have
PRODUCTS = ("x", "gate_up", "down", "gate_up_bias", "down_bias", "shared_gate_up", "shared_down")
"""What `torch.autocast` casts: factors of the large products, and what is added to them."""

NOBODY = -1  # what the rows that fill up a piece choose


def named(tensors: Sequence[Tensor | None]) -> dict[str, Tensor | None]:
    """The arguments by name; PyTorch leaves out the last ones if a call did."""
    return dict(zip_longest(NAMES, tensors))


def prepared(
    checks: ExpertChecks,
    tensors: Sequence[Tensor | None],
    activation: str,
    alpha: float,
    limit: float,
    first_expert: int | None,
) -> tuple[Tensor | None, ...]:
    """All tensors of a call of a front door as the operator gets them, after a look at every argument's kind."""
    found = named(tensors)
    checks.required(**dict(list(found.items())[:NEEDED]))
    checks.places(**found)
    checks.activation(activation, alpha, limit)
    checks.slice_of_experts(first_expert)
    found |= zip(PRODUCTS, autocast(*(found[name] for name in PRODUCTS)))
    return tuple(found.values())


def without_work(x: Tensor, experts: Experts, weights: Tensor) -> bool:
    """Whether there is nothing that a kernel could be staged for."""
    parts = (x, experts.gate_up, weights, experts.shared_gate_up)
    return any(part is not None and part.numel() == 0 for part in parts)
