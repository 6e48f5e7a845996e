"""`torch.ops.nki_lib.router_topk`: checks, launches on tokens in pieces, losses, gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki.torch import nki_op
from nki_lib.common.rows import PIECE, bucket, padded
from nki_lib.moe.router_topk.checks import Routing, check_arguments
from nki_lib.moe.router_topk.gradients import logits_gradient
from nki_lib.moe.router_topk.kernel import router_topk as kernel

Results = tuple[Tensor, Tensor, Tensor, Tensor]


def _fake(logits: Tensor, k: int, bias: Tensor | None = None, **options: Any) -> Results:
    check_arguments(logits, bias, Routing(k, **options))
    shape = (logits.shape[0], k)
    loss = logits.new_empty((), dtype=torch.float32)
    return logits.new_empty(shape), logits.new_empty(shape, dtype=torch.int64), loss, loss.clone()


@nki_op(
    "nki_lib::router_topk",
    fake=_fake,
    schema="(Tensor logits, int k, Tensor? bias=None, *, str score, bool normalize, int? groups, int? topk_groups, "
    "float scale, bool return_losses) -> (Tensor, Tensor, Tensor, Tensor)",
)
def router_topk(logits: Tensor, k: int, bias: Tensor | None = None, **options: Any) -> Results:
    """The operator behind `nki_lib.router_topk`, where the arguments are explained; losses not asked for are 0."""
    routing = Routing(k, **options)
    check_arguments(logits, bias, routing)
    tokens, experts = logits.shape
    weights, indices = logits.new_empty((tokens, k)), logits.new_empty((tokens, k), dtype=torch.int64)
    counts, probabilities, squares = (
        logits.new_zeros(shape, dtype=torch.float32) for shape in ((experts,), (experts,), ())
    )
    bias = None if bias is None else bias.detach().float().contiguous()
    for start in range(0, tokens, PIECE):
        piece = logits[start : start + PIECE]
        count = piece.shape[0]
        found = launch(piece, bias, routing)
        weights[start : start + count] = found[0][:count]
        indices[start : start + count] = found[1][:count]
        if routing.return_losses:
            counts += found[2][0]
            probabilities += found[3][0]
            squares += found[4][0, 0]
    if not routing.return_losses:
        return weights, indices, squares, squares.clone()
    if squares.isnan():  # of a row with plus infinity the kernel has infinity minus infinity
        squares = logits.float().logsumexp(-1).square().sum()
    balance = experts * (counts / tokens * (probabilities / tokens)).sum() if tokens else squares
    return weights, indices, balance, squares / tokens if tokens else squares.clone()


def launch(piece: Tensor, bias: Tensor | None, routing: Routing) -> tuple[Tensor, ...]:
    """The kernel on up to `PIECE` tokens, filled up to one of a few numbers."""
    count = piece.shape[0]
    size = bucket(count)
    valid = None
    if routing.return_losses:
        valid = piece.new_zeros(size, dtype=torch.float32)
        valid[:count] = 1.0
    limited = routing.groups is not None and routing.topk_groups != routing.groups
    groups = (routing.groups, routing.topk_groups) if limited else (1, 1)
    rest = (routing.k, routing.score, routing.normalize, *groups, routing.scale)
    return kernel(padded(piece, size), bias, valid, *rest)


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    logits, k, _ = inputs
    ctx.save_for_backward(logits, output[1])
    ctx.routing = Routing(k, **keyword_only_inputs)


def _backward(
    ctx: Any, of_weights: Tensor, _: Any, of_balance: Tensor, of_z: Tensor
) -> tuple[Tensor, None, None]:
    logits, indices = ctx.saved_tensors
    return logits_gradient(logits, indices, ctx.routing, of_weights, of_balance, of_z), None, None


router_topk.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.router_topk.default
"""What `nki_lib.router_topk` calls."""
