"""Experts token by token in float64, and how far a result may be from that, derived from the number formats.

Write u = 2^-24 for the unit roundoff of float32, w for that of the dtype of x. As in `format_bounds.py`, a sum of n
rounded terms is off by less than 4 sqrt(n) u times the sum of their magnitudes; scales, biases and the like cost 4 u.

* gate and up are off by (4 sqrt(H) + 8) u of sum |x| |weight| + |bias|.
* The slope of an activation is at most SLOPE, its value at most the magnitude of its argument: hidden = act(g) up is
  off by SLOPE dg |up| + |act(g)| dup, and by (w + 8 u) of itself when it is rounded.
* An expert's row is off by |dhidden| |down|, and by (4 sqrt(I) + 8) u of sum |hidden| |down| + |bias|.
* The weighted sum over choices costs (k + 4) u of its magnitudes, and the result is stored with w of itself. Below the
  smallest normal number of the dtype nothing is promised, at each rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.nki_lib.format_bounds import UNIT, stored

SLOPE = 1.2
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def act(g: Tensor, up: Tensor, name: str, alpha: float, limit: float) -> tuple[Tensor, Tensor]:
    """The activation of the gate, and what it is multiplied by."""
    if name == "swiglu":
        return g * torch.sigmoid(g), up
    if name == "geglu":
        return g * (1 + torch.erf(g / 2**0.5)) / 2, up
    if name == "geglu_tanh":
        return g * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (g + 0.044715 * g**3))) / 2, up
    g = g.clamp(max=limit)
    return g * torch.sigmoid(alpha * g), up.clamp(-limit, limit) + 1


def one(x: Tensor, gate_up: Tensor, down: Tensor, biases: Any, how: Any, dtype: Any) -> tuple[Tensor, Tensor]:
    """One expert for one token, and its error. Dimensions: x [H], gate_up [H, 2, I], down [I, H], all float64."""
    round_off, tiny = torch.finfo(dtype).eps / 2, torch.finfo(dtype).tiny
    b1, b2 = biases
    g, up = (x @ gate_up[:, i] + (0 if b1 is None else b1[i]) for i in range(2))
    dg, dup = (
        (4 * len(x) ** 0.5 + 8) * UNIT * (x.abs() @ gate_up[:, i].abs() + (0 if b1 is None else b1[i].abs()))
        for i in range(2)
    )
    bent, factor = act(g, up, *how)
    hidden = bent * factor
    slope = SLOPE * max(1.0, how[1] if how[0] == "clamped_swiglu" else 1.0)
    error = (
        slope * dg * (factor.abs() + dup) + bent.abs() * dup + (round_off + 8 * UNIT) * hidden.abs() + tiny
    )
    row = hidden @ down + (0 if b2 is None else b2)
    magnitude = hidden.abs() @ down.abs() + (0 if b2 is None else b2.abs())
    return row, error @ down.abs() + (4 * len(hidden) ** 0.5 + 8) * UNIT * magnitude


def exact(x: Tensor, gate_up: Tensor, down: Tensor, weights: Tensor, indices: Tensor, **rest: Any) -> Any:
    """The result in float64 and its bound. Weights are wide already; `rest` as the operator takes it."""
    dtype, first = x.dtype, rest.get("first_expert") or 0
    how = (rest.get("activation", "swiglu"), rest.get("alpha", 1.702), rest.get("limit", 7.0))
    wide = {n: t.double() for n, t in rest.items() if isinstance(t, Tensor)}
    x, gate_up, down, weights = (t.detach().double() for t in (x, gate_up, down, weights))
    result, error, magnitude = (torch.zeros_like(x) for _ in range(3))
    for t in range(x.shape[0]):
        terms = []
        for j in range(indices.shape[1]):
            e = int(indices[t, j]) - first
            if 0 <= e < gate_up.shape[0]:
                biases = [wide[n][e] if n in wide else None for n in ("gate_up_bias", "down_bias")]
                terms.append((weights[t, j], *one(x[t], gate_up[e], down[e], biases, how, dtype)))
        if "shared_gate_up" in wide:
            share = wide["shared_gate"][t] if "shared_gate" in wide else torch.tensor(1.0).double()
            pair = (wide["shared_gate_up"], wide["shared_down"])
            terms.append((share, *one(x[t], *pair, (None, None), how, dtype)))
        for weight, row, off in terms:
            result[t] += weight * row
            error[t] += weight.abs() * off
            magnitude[t] += weight.abs() * (row.abs() + off)
    return result, stored(result, error + (indices.shape[1] + 5) * UNIT * magnitude, dtype)


def by_channel(values: Tensor, scale: Tensor) -> Tensor:
    """fp8 weights as numbers. Dimensions: [E, n, ...] and [E, ...]."""
    return values.double() * scale.double()[:, None]


def by_block(values: Tensor, scale: Tensor) -> Tensor:
    """MX weights as numbers. Dimensions: [E, n, ...] or, of fp4, [E, n / 2, ...]; scale [E, n / 32, ...] bits."""
    if values.dtype == torch.uint8:
        table = torch.tensor([*FP4, *(-v for v in FP4)], dtype=torch.float64)
        pairs = torch.stack([table[(values % 16).long()], table[(values // 16).long()]], 2)
        values = pairs.flatten(1, 2)
    powers = 2.0 ** (scale.view(torch.uint8).double() - 127)
    return values.double() * powers.repeat_interleave(32, 1)


def random(*shape: int, seed: int = 0, dtype: Any = torch.float32, scale: float = 1.0) -> Any:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))) * scale
    return made.to(dtype)


def call(size: Any, dtype: Any, seed: int = 0) -> tuple[Any, ...]:
    tokens, experts, choices, width, inner = size
    generator = torch.Generator().manual_seed(seed)
    gate_up = random(experts, width, 2, inner, seed=seed, dtype=dtype, scale=max(width, 1) ** -0.5)
    down = random(experts, inner, width, seed=seed, dtype=dtype, scale=max(inner, 1) ** -0.5)
    weights = torch.rand(tokens, choices, generator=generator)
    indices = torch.rand(tokens, experts, generator=generator).argsort(1)[:, :choices]
    return random(tokens, width, seed=seed, dtype=dtype), gate_up, down, weights, indices


def compare(operator: Any, arguments: tuple[Any, ...], wide: Any = None, **rest: Any) -> Any:
    """The result, after it was found to be as near to the exact one as it must be."""
    found = operator(*arguments, **rest)
    x, gate_up, down, *routing = arguments
    told = {n: v for n, v in rest.items() if not n.endswith("scale")}
    wanted, bound = exact(x, *(wide or (gate_up, down)), *routing, **told)
    assert found.dtype == x.dtype and found.is_contiguous() and found.shape == x.shape
    assert ((found.double() - wanted).abs() <= bound).all(), ((found - wanted).abs() / bound).max()
    return found
