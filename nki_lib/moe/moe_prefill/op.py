"""`torch.ops.nki_lib.moe_prefill`: checks, the cases without work, launches on up to `PIECE` tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from nki.torch import nki_op, run_into
from nki_lib.common.rows import bucket, padded
from nki_lib.moe import gradients
from nki_lib.moe.arguments import ExpertChecks, Experts, bytes_of
from nki_lib.moe.moe_prefill.kernel import moe_prefill as kernel
from nki_lib.moe.operator import ARGUMENTS, NOBODY, OPTIONS, without_work
from nki_lib.moe.reference import expert_outputs

CHECKS = ExpertChecks("moe_prefill")
PIECE = 4096  # tokens of a launch: beyond, weights come in again, and take a small part of the time


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
) -> Tensor:
    check_arguments(
        x, Experts(gate_up, down, *rest), weights, indices, activation, alpha, limit, first_expert
    )
    return x.new_empty(x.shape)


@nki_op("nki_lib::moe_prefill", fake=_fake, schema=f"({ARGUMENTS}, *, {OPTIONS}) -> Tensor")
def moe_prefill(
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
) -> Tensor:
    """The operator behind `nki_lib.moe_prefill`, where the arguments are explained."""
    experts = Experts(gate_up, down, *rest)
    check_arguments(x, experts, weights, indices, activation, alpha, limit, first_expert)
    if first_expert is None:
        CHECKS.inside(indices, gate_up.shape[0])
    out = x.new_empty(x.shape)
    how = (activation, alpha, limit, first_expert or 0)
    if without_work(x, experts, weights):
        return out.copy_(expert_outputs(x, experts, weights, indices, *how))
    experts = as_in_memory(experts)
    indices = indices.clamp(NOBODY, torch.iinfo(torch.int32).max).int()
    for start in range(0, x.shape[0], PIECE):
        stop = min(start + PIECE, x.shape[0])
        launch(out[start:stop], x[start:stop], experts, weights[start:stop], indices[start:stop], how, start)
    return out


def launch(
    out: Tensor,
    x: Tensor,
    experts: Experts,
    weights: Tensor,
    indices: Tensor,
    how: tuple[object, ...],
    start: int,
) -> None:
    """One piece. Dimensions: out, x [n, H], weights, indices [n, k]; start: where it begins among all tokens."""
    count = x.shape[0]
    size = bucket(count)
    gate = experts.shared_gate
    if gate is not None:
        gate = padded(gate[start : start + count, None].float().contiguous(), size)
    indices = torch.nn.functional.pad(indices, (0, 0, 0, size - count), value=NOBODY)
    tensors = (padded(x.contiguous(), size), experts.gate_up, experts.down)
    choices = (padded(weights.contiguous(), size), indices.contiguous())
    optional = (experts.gate_up_bias, experts.down_bias, experts.gate_up_scale, experts.down_scale)
    arguments = (*tensors, *choices, *how, *optional, experts.shared_gate_up, experts.shared_down, gate)
    if size == count:
        run_into(out, kernel, *arguments)
    else:
        out.copy_(kernel(*arguments)[:count])


def as_in_memory(experts: Experts) -> Experts:
    """The same, each tensor contiguous; two fp4 elements as the byte they share; a shared expert as one of one."""
    found = {name: None if t is None else bytes_of(t).contiguous() for name, t in vars(experts).items()}
    for name in ("shared_gate_up", "shared_down"):
        if found[name] is not None:
            found[name] = found[name][None]
    return Experts(**found)


def check_arguments(
    x: Tensor,
    experts: Experts,
    weights: Tensor,
    indices: Tensor,
    activation: str,
    alpha: float,
    limit: float,
    first_expert: int | None,
) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.model(x, weights, indices, experts)
    CHECKS.activation(activation, alpha, limit)
    CHECKS.slice_of_experts(first_expert)


moe_prefill.register_autograd(gradients.backward, setup_context=gradients.setup_context)

OPERATOR = torch.ops.nki_lib.moe_prefill.default
"""What `nki_lib.moe_prefill` calls."""
