"""`torch.ops.nki_lib.moe_decode`: checks, the cases without work, the style, launches, gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

import nki.language as nl
from nki.torch import nki_op, run_into
from nki_lib.common.rows import bucket, padded
from nki_lib.moe import gradients
from nki_lib.moe.arguments import ExpertChecks, Experts, bytes_of
from nki_lib.moe.moe_decode.kernel import moe_decode as kernel
from nki_lib.moe.moe_prefill.op import OPERATOR as PREFILL
from nki_lib.moe.operator import ARGUMENTS, NOBODY, OPTIONS, without_work
from nki_lib.moe.reference import expert_outputs

CHECKS = ExpertChecks("moe_decode")
STYLES = ("auto", "chosen", "all")
PIECE = nl.tile_size.pmax  # tokens of a launch: columns that move past each weight
CROWDED = 8  # choices for each expert from which on a list of the chosen ones would hardly leave one out


def _fake(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    weights: Tensor,
    indices: Tensor,
    *rest: Tensor | None,
    activation: str = "swiglu",
    alpha: float = 1.702,
    limit: float = 7.0,
    first_expert: int | None = None,
    style: str = "auto",
) -> Tensor:
    experts = Experts(gate_up, down, *rest)
    check_arguments(x, experts, weights, indices, (activation, alpha, limit), first_expert, style)
    return x.new_empty(x.shape)


@nki_op(
    "nki_lib::moe_decode",
    fake=_fake,
    schema=f'({ARGUMENTS}, *, {OPTIONS}, str style="auto") -> Tensor',
)
def moe_decode(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    weights: Tensor,
    indices: Tensor,
    *rest: Tensor | None,
    activation: str = "swiglu",
    alpha: float = 1.702,
    limit: float = 7.0,
    first_expert: int | None = None,
    style: str = "auto",
) -> Tensor:
    """The operator behind `nki_lib.moe_decode`, where the arguments are explained."""
    experts, how = Experts(gate_up, down, *rest), (activation, alpha, limit)
    check_arguments(x, experts, weights, indices, how, first_expert, style)
    count = gate_up.shape[0]
    if first_expert is None:
        CHECKS.inside(indices, count)
    out = x.new_empty(x.shape)
    if without_work(x, experts, weights):
        return out.copy_(expert_outputs(x, experts, weights, indices, *how, first_expert or 0))
    if style == "auto" and x.shape[0] > PIECE:
        options = {"activation": activation, "alpha": alpha, "limit": limit, "first_expert": first_expert}
        result: Tensor = PREFILL(x, gate_up, down, weights, indices, *rest, **options)
        return result
    experts = Experts(
        **{n: None if t is None else bytes_of(t).contiguous() for n, t in vars(experts).items()}
    )
    number = indices.long() - (first_expert or 0)
    number = torch.where((number >= 0) & (number < count), number, NOBODY).int()
    for start in range(0, x.shape[0], PIECE):
        tokens = slice(start, min(start + PIECE, x.shape[0]))
        launch(out[tokens], x[tokens], experts, weights[tokens], number[tokens], how, style, tokens)
    return out


def launch(
    out: Tensor,
    x: Tensor,
    experts: Experts,
    weights: Tensor,
    indices: Tensor,
    how: tuple[str, float, float],
    style: str,
    tokens: slice,
) -> None:
    """One piece: `tokens` of all. It is filled up with tokens that choose nobody. Dimensions: out, x [n, H]."""
    count = x.shape[0]
    size = bucket(count)
    everything = vars(experts) | {"shared_gate": None}
    if experts.shared_gate is not None:
        everything["shared_gate"] = padded(experts.shared_gate[tokens].contiguous(), size)[None]
    names = ("gate_up", "down")
    before = (padded(x.contiguous(), size), *(everything.pop(name) for name in names))
    choices = pad(indices, (0, 0, 0, size - count), value=NOBODY).contiguous()
    chosen = style == "chosen" or (style == "auto" and indices.numel() < CROWDED * experts.gate_up.shape[0])
    arguments = (*before, padded(weights.contiguous(), size), choices, *everything.values(), *how, chosen)
    if size == count:
        run_into(out, kernel, *arguments)
    else:
        out.copy_(kernel(*arguments)[:count])


def check_arguments(
    x: Tensor,
    experts: Experts,
    weights: Tensor,
    indices: Tensor,
    how: tuple[str, float, float],
    first_expert: int | None,
    style: str,
) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.model(x, weights, indices, experts)
    CHECKS.activation(*how)
    CHECKS.slice_of_experts(first_expert)
    CHECKS.choice("style", style, STYLES)


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    options = {name: value for name, value in keyword_only_inputs.items() if name != "style"}
    gradients.setup_context(ctx, inputs, options, output)


moe_decode.register_autograd(gradients.backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.moe_decode.default
"""What `nki_lib.moe_decode` calls."""
