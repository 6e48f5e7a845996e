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
"""

from __future__ import annotations

import torch
from torch import Tensor

from nki_lib.attention.flash_attention.reference import attention

UNIT = 2.0**-24


def exact_and_bound(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The result in float64, and what each element may be off by."""
    depth, keys = q.shape[3], k.shape[2]
    narrow = torch.finfo(q.dtype)
    stored = narrow.eps / 2
    wide_q, wide_k, wide_v = q.double(), k.double(), v.double()
    exact = attention(wide_q, wide_k, wide_v, causal=causal, scale=scale)
    factor = abs(depth**-0.5 if scale is None else scale)
    repeated = wide_k.repeat_interleave(q.shape[1] // k.shape[1], 1).abs()
    if exact.numel() == 0 or keys == 0:
        return exact, torch.zeros_like(exact)
    magnitude = factor * (wide_q.abs() @ repeated.transpose(-1, -2)).amax(-1, keepdim=True)
    weight = (4 * depth**0.5 + 3) * UNIT * magnitude + 12 * UNIT
    sums = 8 * keys**0.5 * UNIT + 2 * UNIT
    mixed = attention(wide_q, wide_k, wide_v.abs(), causal=causal, scale=scale)
    return exact, (2 * weight + sums + stored) * mixed + stored * exact.abs() + narrow.tiny
