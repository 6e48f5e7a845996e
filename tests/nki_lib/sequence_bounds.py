"""How far convolutions and scans may be from the exact result, element by element, derived from the number formats.

Write u = 2^-24 for the unit roundoff of float32. As in `format_bounds.py`, a sum of n rounded terms is off by less
than 4 sqrt(n) u times the sum of magnitudes, and a result is stored with the roundoff of its type.

Convolution, K taps: (4 sqrt(K) + 4) u of sum |w x| + |bias|. |silu'| < 1.1 and |silu''| <= 1/2, a function costs 4 u.
Its gradients: the slope g = dy silu'(s) is off by |dy| (1/2 error of s + 4 u); sums of products with g carry that on.

Scan: step, softplus of x = delta + bias, is off by e = 4 u step + u |x| sigmoid(x); a = exp(step A) by
r = |A| e + u |step A| + 4 u of itself; what is taken in, step B u, by |B u| e + 2 u of itself. The error E of the
states follows them, E[t] = a E[t-1] + (r + 2 u) |a h[t-1]| + |B u| e + 2 u |step B u| + u |h[t]|, and y adds its sum
over n states.
Its gradients are sums of products, each with up to l decays for one state or less; a decay is off by no more than the
largest r, and a sum over l, n and d terms by 4 sqrt(l n d) u of the magnitudes, which are the gradients of a scan of
magnitudes with the same steps and decays, see `magnitudes` in `test_selective_scan.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.nki_lib.format_bounds import UNIT, product_error


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
    """In float64, one tap after the other. Dimensions: x [B, C, L], weight [C, K] -> [B, C, T]."""
    padded, taps = functional.pad(x, padding), weight.shape[1]
    count = padded.shape[2] - taps + 1
    out = sum(weight[:, k, None] * padded[..., k : k + count] for k in range(taps))
    return out if bias is None else out + bias[:, None]


def convolution_error(x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
    """Of the sum before silu."""
    absolute = None if bias is None else bias.abs()
    return product_error(weight.shape[1], convolution(x.abs(), weight.abs(), absolute, padding))


def slope_error(grad: Tensor, error: Tensor) -> Tensor:
    """Of grad * silu'(s), if s was off by `error`."""
    return grad.abs() * (error / 2 + 4 * UNIT)


class ScanError:
    """A scan in float64, position by position, and what float32 may be off by.

    Dimensions: u, delta, z [b, d, l], A [d, n], B, C [b, n, l], D, bias [d]; all float64, D, z, bias may be None.
    """

    def __init__(self, u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any, z: Any, bias: Any, softplus: bool):
        x = delta if bias is None else delta + bias[:, None]
        step = functional.softplus(x) if softplus else x
        slope = torch.sigmoid(x) if softplus else torch.ones_like(x)
        e = UNIT * (4 * step.abs() + x.abs() * slope)
        state = error = torch.zeros(u.shape[0], *A.shape, dtype=torch.float64)
        ys, errors = [], []
        self.worst = 0.0
        for t in range(u.shape[2]):
            s, es, b = step[:, :, t, None], e[:, :, t, None], B[:, None, :, t] * u[:, :, t, None]
            decay = torch.exp(s * A)
            r = A.abs() * es + UNIT * (s * A).abs() + 4 * UNIT
            before, state = decay * state, decay * state + s * b
            error = decay * error + (r + 2 * UNIT) * before.abs()
            error = error + b.abs() * es + 2 * UNIT * (s * b).abs() + UNIT * state.abs()
            self.worst = max(self.worst, float(r.detach().max()) if r.numel() else 0.0)
            products = state * C[:, None, :, t]
            ys.append(products.sum(-1))
            of_sum = (4 * A.shape[1] ** 0.5 + 4) * UNIT * products.abs().sum(-1)
            errors.append((error * C[:, None, :, t].abs()).sum(-1) + of_sum)
        self.state, self.state_error = state, error
        self.y = torch.stack(ys, -1) if ys else torch.zeros_like(u)
        self.error = torch.stack(errors, -1) if ys else torch.zeros_like(u)
        if D is not None:
            self.y, self.error = self.y + D[:, None] * u, self.error + 4 * UNIT * (D[:, None] * u).abs()
        if z is not None:
            gate = functional.silu(z)
            self.error = self.error * gate.abs() + 6 * UNIT * (self.y * gate).abs()
            self.y = self.y * gate

    def of_gradients(self, shape: Any, states: int) -> float:
        """What the gradients may be off by, relative to those of the magnitudes."""
        b, d, length = shape
        return 3 * length * self.worst + (4 * (b * d * length * states) ** 0.5 + 64) * UNIT
