"""The gradient of flex attention, by recomputation in plain PyTorch, one head at a time: [Sq, Sk] float32 is in memory.

With S = scale q k^T, X = score(S), P = softmax(mask(X)) and O = P v:

    dv = P^T dO;  dP = dO v^T;  dX = P (dP - rowsum(P dP));  dS = dX score'(S);  dq = scale dS k;  dk = scale dS^T q
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki_lib.attention.flex_attention.blocks import Call, cut, dense_mask, unpack
from nki_lib.attention.flex_attention.reference import indices, weights

Gradients = tuple[Tensor, Tensor, Tensor]


def gradients(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    data: list[Tensor],
    kinds: Tensor | None,
    tiles: Tensor | None,
    *,
    score: str,
    mask: str,
    block: list[int],
    scale: float | None,
) -> Gradients:
    """dq, dk and dv, computed in float32 and rounded once."""
    made = tuple(torch.zeros(t.shape, dtype=torch.float32) for t in (q, k, v))
    if q.numel() and k.shape[2]:
        lengths = (q.shape[2], k.shape[2])
        call = unpack(score, mask, data, kinds, tiles, block, lengths)
        scale = q.shape[3] ** -0.5 if scale is None else scale
        group = q.shape[1] // k.shape[1]
        for b in range(q.shape[0]):
            for h in range(q.shape[1]):
                place = indices(b, h, *lengths)
                at = (b, h), (b, h // group), (b, h // group)
                slices = [t[i].float() for t, i in zip((q, k, v), at)]
                found = _head(
                    grad[b, h].float(), *slices, call.score, place, _seen(call, place, lengths), scale
                )
                for total, i, part in zip(made, at, found):
                    total[i] += part
    return made[0].to(q.dtype), made[1].to(k.dtype), made[2].to(v.dtype)


def _seen(call: Call, place: Any, lengths: tuple[int, int]) -> Tensor:
    """Who sees whom, one head: all in full blocks, by the tile or the recipe in partial ones. Dimensions: [Sq, Sk]."""
    h = int(place[1])
    kinds, tiles = cut(call.kinds, call.tiles, int(place[0]), slice(h, h + 1))
    recipe = None if call.mask is None else call.mask.torch(*place)
    return dense_mask(kinds[0], tiles, call.block, lengths, recipe)


def _head(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, score: Any, place: Any, seen: Tensor, scale: float
) -> Gradients:
    """dq, dk and dv of one head. Dimensions: grad, q [Sq, D], k, v [Sk, D], seen [Sq, Sk]."""
    plain = scale * (q @ k.T)
    p = weights(plain if score is None else score.torch(plain, *place), seen)
    dp = grad @ v.T
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    if score is not None:
        ds = torch.where(seen, ds * score.slope(plain, *place), 0.0)
    return ds @ k, ds.T @ q, p.T @ grad
