"""How far flash attention may be from the exact result, element by element, derived from the number formats.

Write u = 2^-24 for the unit roundoff of float32, in which everything but the stored weights and the output is computed,
and w for that of the tensors' type (2^-24 float32, 2^-11 float16, 2^-8 bfloat16). A sum of n rounded terms is off by
less than 4 sqrt(n) u times the sum of magnitudes, but for about one case in 3000 (rounding errors are as good as
independent; the certain bound n u is never met).

* A score is a sum of D products, then scaled, then shifted by the row's maximum: with a = |scale| sum |q_d k_d|, which
  none of them exceeds, it is off by (4 sqrt(D) + 3) u a. The shift itself is one number per row and cancels.
* exp is within 2.5 units in the last place, 5 u, and turns that absolute error into a relative one of the weight,
  which is stored with another w. The rescaling between blocks of keys costs each weight 7 u: an exponential and two
  products.
* The weighted sum of n rows of v adds 4 sqrt(n) u, the sum of the weights as much, 1/sum and the product 2 u; numerator
  and denominator both carry the error of the weights.
* The result is stored with w of itself; below the smallest normal number of the type nothing is promised.
* A soft cap and a finite bias are part of a score: their sizes join its magnitude a.

The gradients: dscores are the weights times grad v^T - sum(grad out). With s = |grad| |v|^T + sum(|grad| weights |v|)
they are off by c s times the weight, where c adds up the errors above, those of the sums over D, Sk and G Sq, and what
is stored between (weights, dscores, the output, the result). dq and dk are sums of dscores, dv is one of weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.nki_lib.format_bounds import UNIT, stored


def sees(q: Tensor, k: Tensor, extras: dict[str, Any]) -> Tensor:
    """Which queries may see which keys, by their places; the last query stands beside the last key."""
    place = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    key = torch.arange(k.shape[2])[None, :]
    visible = torch.ones(q.shape[0], 1, q.shape[2], k.shape[2], dtype=torch.bool)
    if extras.get("causal"):
        visible = visible & (key <= place)
    if extras.get("window") is not None:
        visible = visible & (place - key < extras["window"])
    if extras.get("key_padding_mask") is not None:
        visible = visible & extras["key_padding_mask"][:, None, None, :]
    if extras.get("q_segment_ids") is not None:
        ids = extras["q_segment_ids"][:, :, None], extras["kv_segment_ids"][:, None, :]
        visible = visible & (ids[0] == ids[1])[:, None]
    return visible


def weighed(q: Tensor, k: Tensor, **extras: Any) -> tuple[Tensor, Tensor]:
    """The weights [B, Hq, Sq, Sk] of the keys and the log of their denominators [B, Hq, Sq], head by head in float64.

    A power, over the sum of those of the keys that are seen and of the sink; a query that sees nothing weighs nothing.
    """
    group, scale = q.shape[1] // k.shape[1], extras.get("scale")
    scale = q.shape[3] ** -0.5 if scale is None else scale
    products = [torch.einsum("bqd,bkd->bqk", q[:, h], k[:, h // group]) for h in range(q.shape[1])]
    scores = scale * torch.stack(products, 1)
    if extras.get("softcap") is not None:
        scores = extras["softcap"] * torch.tanh(scores / extras["softcap"])
    if extras.get("bias") is not None:
        scores = scores + extras["bias"]
    scores = torch.where(sees(q, k, extras), scores, float("-inf"))
    top = scores.detach().amax(-1, keepdim=True)
    sinks = extras.get("sinks")
    if sinks is not None:
        sinks = sinks[:, None, None]
        top = torch.maximum(top, sinks.detach())
    top = torch.where(top == float("-inf"), 0.0, top)
    powers = torch.exp(scores - top)
    total = powers.sum(-1, keepdim=True)
    total = total if sinks is None else total + torch.exp(sinks - top)
    weights = powers / torch.where(total == 0, 1.0, total)
    return weights, (top + torch.log(total))[..., 0]


def attended(q: Tensor, k: Tensor, v: Tensor, **extras: Any) -> Tensor:
    """Sums of the rows of v with the weights, in float64; zeros of what sees nothing."""
    if q.numel() == 0 or k.shape[2] == 0:
        return torch.zeros_like(q)
    weights, group = weighed(q, k, **extras)[0], q.shape[1] // k.shape[1]
    return torch.stack([weights[:, h] @ v[:, h // group] for h in range(q.shape[1])], 1)


def widened(extras: dict[str, Any]) -> dict[str, Any]:
    """The same arguments with float64 for floats."""
    return {
        name: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x
        for name, x in extras.items()
    }


def magnitude_of(q: Tensor, k: Tensor, extras: dict[str, Any]) -> Tensor:
    """What no score of a query exceeds: [B, Hq, Sq, 1]."""
    scale, bias = extras.get("scale"), extras.get("bias")
    factor = abs(q.shape[3] ** -0.5 if scale is None else scale)
    repeated = k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).abs()
    magnitude = factor * (q.double().abs() @ repeated.transpose(-1, -2)).amax(-1, keepdim=True)
    if bias is not None:
        magnitude = magnitude + bias.double().abs().nan_to_num(posinf=0.0).max()
    return magnitude + (extras.get("softcap") or 0.0)


def exact_and_bound(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, **extras: Any
) -> tuple[Tensor, Tensor]:
    """The result in float64, and what each element may be off by."""
    depth, keys = q.shape[3], k.shape[2]
    step = torch.finfo(q.dtype).eps / 2
    extras = widened(extras) | {"causal": causal, "scale": scale}
    exact = attended(q.double(), k.double(), v.double(), **extras)
    if exact.numel() == 0 or keys == 0:
        return exact, torch.zeros_like(exact)
    weight = (4 * depth**0.5 + 3) * UNIT * magnitude_of(q, k, extras) + 12 * UNIT
    sums = 8 * keys**0.5 * UNIT + 2 * UNIT
    mixed = attended(q.double(), k.double(), v.double().abs(), **extras)
    return exact, stored(exact, (2 * weight + sums + step) * mixed, q.dtype)


def gradients_and_bounds(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, extras: dict[str, Any]
) -> list[tuple[Tensor, Tensor]]:
    """The gradients of q, k and v in float64, and what each element may be off by."""
    extras, narrow = widened(extras), torch.finfo(q.dtype)
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    exact = torch.autograd.grad(attended(*leaves, **extras), leaves, grad.double())
    wide = [x.detach().double().abs() for x in (q, k, v, grad)]
    group, scale = q.shape[1] // k.shape[1], extras.get("scale")
    keys, values = (x.repeat_interleave(group, 1) for x in wide[1:3])
    weights = weighed(q.detach().double(), k.detach().double(), **extras)[0]
    lengths = q.shape[3] ** 0.5 + k.shape[2] ** 0.5 + (group * q.shape[2]) ** 0.5
    relative = 4 * ((4 * q.shape[3] ** 0.5 + 3) * UNIT * magnitude_of(q, k, extras) + 12 * UNIT)
    relative = relative + 8 * lengths * UNIT + 4 * narrow.eps / 2
    size = wide[3] @ values.transpose(-1, -2) + (wide[3] * (weights @ values)).sum(-1, keepdim=True)
    factor = abs(q.shape[3] ** -0.5 if scale is None else scale)
    scores_off, weights_off = relative * weights * size * factor, relative * weights
    bounds = [
        scores_off @ keys,
        scores_off.transpose(-1, -2) @ wide[0],
        weights_off.transpose(-1, -2) @ wide[3],
    ]
    shape = (*k.shape[:2], group, *k.shape[2:])
    bounds[1:] = [x.reshape(shape).sum(2) for x in bounds[1:]]
    return [(e, stored(e, b, q.dtype)) for e, b in zip(exact, bounds)]
