"""The checks of `router_topk`. All ask for shapes, dtypes and options only: fake tensors pass too."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import nki.language as nl
from nki import errors
from nki_lib.common.arguments import Checks
from nki_lib.common.kinds import check_flags, check_whole

CHECKS = Checks("router_topk")
SCORES = ("softmax", "topk_softmax", "sigmoid")
MOST_EXPERTS = nl.tile_size.psum_bank_fmax
MOST_CHOSEN = 32


@dataclass(frozen=True)
class Routing:
    """How experts are chosen and weighted, as `nki_lib.router_topk` explains it."""

    k: int
    score: str
    normalize: bool
    groups: int | None
    topk_groups: int | None
    scale: float
    return_losses: bool = False

    @property
    def divides(self) -> bool:
        """The weights of a token add up to `scale`."""
        return self.normalize or self.score == "topk_softmax"


def check_kinds(routing: Routing) -> None:
    """Raise for options of a wrong kind, before PyTorch's schema does."""
    check_whole(CHECKS, "k", routing.k)
    CHECKS.choice("score", routing.score, SCORES)
    check_flags(CHECKS, normalize=routing.normalize, return_losses=routing.return_losses)
    check_whole(CHECKS, "groups", routing.groups, optional=True)
    check_whole(CHECKS, "topk_groups", routing.topk_groups, optional=True)
    CHECKS.number("scale", routing.scale, optional=False)


def check_arguments(logits: Tensor, bias: Tensor | None, routing: Routing) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.tensor("logits", logits, "tokens, experts")
    experts = logits.shape[1]
    if not 1 <= experts <= MOST_EXPERTS:
        raise CHECKS.error(errors.ShapeError, "logits", logits, f"1 to {MOST_EXPERTS} experts")
    if not 1 <= routing.k <= min(experts, MOST_CHOSEN):
        raise CHECKS.error(
            errors.ArgumentError,
            "k",
            routing.k,
            f"1 to {min(experts, MOST_CHOSEN)}, as there are {experts} experts",
        )
    CHECKS.choice("score", routing.score, SCORES)
    CHECKS.number("scale", routing.scale, optional=False)
    check_bias(logits, bias, routing)
    check_groups(experts, routing)


def check_bias(logits: Tensor, bias: Tensor | None, routing: Routing) -> None:
    """bias [E] goes with sigmoids."""
    if bias is None:
        return
    if routing.score != "sigmoid":
        remedy = 'add it to the logits, or pass score="sigmoid"'
        raise CHECKS.error(errors.ArgumentError, "bias", bias, f"None with score={routing.score!r}", remedy)
    if bias.dtype not in (torch.float32, logits.dtype):
        raise CHECKS.error(
            errors.DtypeError, "bias", bias, "float32, or the dtype of logits", "cast it first"
        )
    CHECKS.shape("bias", bias, (logits.shape[1],), "one for each expert")
    if bias.device != logits.device:
        raise CHECKS.error(errors.ArgumentError, "bias", bias, f"{logits.device}, as logits")


def check_groups(experts: int, routing: Routing) -> None:
    """groups and topk_groups go with sigmoids, and leave enough experts."""
    groups, kept = routing.groups, routing.topk_groups
    if groups is None and kept is None:
        return
    if groups is None or kept is None:
        name = "topk_groups" if groups is None else "groups"
        missing = "groups" if groups is None else "topk_groups"
        raise CHECKS.error(
            errors.ArgumentError,
            missing,
            None,
            f"a number, as {name} is given",
            f"pass both, or leave {name} out",
        )
    if routing.score != "sigmoid":
        raise CHECKS.error(errors.ArgumentError, "groups", groups, f"None with score={routing.score!r}")
    if groups < 1 or experts % groups or experts // groups < 2:
        allowed = f"a divisor of {experts} that leaves two experts or more in a group"
        raise CHECKS.error(errors.ArgumentError, "groups", groups, allowed)
    if not 1 <= kept <= groups:
        raise CHECKS.error(errors.ArgumentError, "topk_groups", kept, f"1 to {groups}")
    if routing.k > kept * (experts // groups):
        allowed = f"at most {kept * (experts // groups)}, the experts of {kept} groups"
        raise CHECKS.error(errors.ArgumentError, "k", routing.k, allowed)
