"""`torch.ops.nki_lib.flex_attention`: checks, the cases without work, one launch per batch element and key head.

Recipes pass through the operator as text (`score`, `mask`) and their tensors (`data`), a BlockMask as `kinds`, `block`
and `tiles`; `api.py` makes them. All launches with equal recipes, shapes and kinds of blocks run one cached program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import nki.language as nl
from nki.torch import nki_op, run_into
from nki_lib.attention.checks import AttentionChecks
from nki_lib.attention.flex_attention.backward import Gradients, gradients
from nki_lib.attention.flex_attention.blocks import Call, cut, unpack
from nki_lib.attention.flex_attention.kernel import flex_attention as kernel

CHECKS = AttentionChecks("flex_attention")
ARGUMENTS = "Tensor q, Tensor k, Tensor v, Tensor[] data, Tensor? kinds, Tensor? tiles"
OPTIONS = "str score, str mask, int[] block, float? scale"


def _fake(q: Tensor, k: Tensor, v: Tensor, *_: Any, scale: float | None, **__: Any) -> Tensor:
    check_arguments(q, k, v, scale)
    return q.new_empty(q.shape)


@nki_op("nki_lib::flex_attention", fake=_fake, schema=f"({ARGUMENTS}, *, {OPTIONS}) -> Tensor")
def flex_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    data: Sequence[Tensor],
    kinds: Tensor | None,
    tiles: Tensor | None,
    *,
    score: str,
    mask: str,
    block: Sequence[int],
    scale: float | None,
) -> Tensor:
    """The operator behind `nki_lib.flex_attention`, where the arguments are explained."""
    check_arguments(q, k, v, scale)
    batch, heads, queries, depth = q.shape
    out = q.new_empty(q.shape)
    if q.numel() == 0 or k.shape[2] == 0:
        return out.zero_()
    call = unpack(score, mask, data, kinds, tiles, block, (queries, k.shape[2]))
    scale = float(depth**-0.5 if scale is None else scale)
    group = heads // k.shape[1]
    for b in range(batch):
        for h in range(k.shape[1]):
            mine = slice(h * group, (h + 1) * group)
            what, masks = cut(call.kinds, call.tiles, b, mine)
            masks = [] if masks is None or len(masks) == 0 else [masks.to(torch.uint8)]
            args = [*call.bare, _data(call, b, mine), masks, what.numpy().tobytes(), call.block]
            run_into(out[b, mine], kernel, q[b, mine], k[b, h], v[b, h], scale, *args)
    return out


def _data(call: Call, b: int, heads: slice) -> list[Tensor]:
    """The tensors of the recipes for one launch."""
    recipes = [recipe for recipe in (call.score, call.mask) if recipe is not None]
    return [tensor for recipe in recipes for tensor in recipe.for_launch(b, heads).tensors()]


def _fake_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> Gradients:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


flex_attention_backward = nki_op(
    "nki_lib::flex_attention_backward",
    gradients,
    fake=_fake_backward,
    schema=f"(Tensor grad, {ARGUMENTS}, *, {OPTIONS}) -> (Tensor, Tensor, Tensor)",
)


def _save(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    q, k, v, data, kinds, tiles = inputs
    ctx.save_for_backward(q, k, v, kinds, tiles, *data)
    ctx.options = keyword_only_inputs


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    q, k, v, kinds, tiles, *data = ctx.saved_tensors
    found = torch.ops.nki_lib.flex_attention_backward(grad, q, k, v, data, kinds, tiles, **ctx.options)
    return (*found, [None] * len(data), None, None)


flex_attention.register_autograd(_backward, setup_context=_save)


def check_arguments(q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.attention(q, k, v, nl.tile_size.pmax)
    CHECKS.numbers(scale)


OPERATOR = torch.ops.nki_lib.flex_attention.default
"""What `nki_lib.flex_attention` calls."""
