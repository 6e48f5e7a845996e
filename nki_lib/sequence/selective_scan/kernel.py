"""The selective scan of Mamba: for every channel n states, that decay and take in at rates of their own at every step.

Letters: see `channels.py`.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, spans, wide_like
from nki_lib.norm.blocks import Late
from nki_lib.sequence.selective_scan.channels import (
    applied,
    combined,
    copied,
    folded,
    groups_of,
    load_shared,
    part_width,
    summed,
    together,
)


@nki.jit
def selective_scan(
    u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any, z: Any, delta_bias: Any, delta_softplus: bool
) -> Any:
    """h[t] = exp(step[t] A) h[t-1] + step[t] B[t] u[t]; y[t] = (C[t] h[t] + D u[t]) silu(z[t]); in float32.

    Dimensions: u, delta [d, l], A [d, n] float32, B, C [n, l], D, delta_bias [d] or None, z [d, l] or None -> y [d, l],
    ends [parts, d, n] float32, the states after each part, and if there is z, y before silu(z) [d, l]. step is
    delta + delta_bias, through softplus if delta_softplus.

    Pseudocode:
        for each part of the positions:
            load B and C into every partition
            for each group of tiles: prepare steps and silu(z); for each tile, for a few states i at a time:
                Scalar: a = exp(step A_i); GpSimd: x = step u B_i
                one turn late: Vector: h = scan of a h + x, from the last states of the part before; y += h C_i
            store y, the last states
    """
    (channels, length), states = u.shape, A.shape[1]
    parts = spans(length, part_width(states))
    out = nl.ndarray(u.shape, dtype=u.dtype, buffer=nl.shared_hbm)
    ungated = None if z is None else nl.ndarray(u.shape, dtype=u.dtype, buffer=nl.shared_hbm)
    ends = nl.ndarray((len(parts), channels, states), dtype=nl.float32, buffer=nl.shared_hbm)
    groups = groups_of(A, D, delta_bias)
    late = Late(take_in)
    for p, span in enumerate(parts):
        shared = load_shared(B, span), load_shared(C, span)
        for group in groups:
            steps = [steps_of(tile, tile.load(delta, span), delta_softplus) for tile in group]
            gates = [None if z is None else applied(nl.silu, tile.load(z, span)) for tile in group]
            for tile, step, gate in zip(group, steps, gates):
                where = tile.rows, slice(*span)
                target = Target(
                    out[where], None if z is None else ungated[where], ends[p, tile.rows, :], gate
                )
                feed(late, target, tile, step, tile.load(u, span), *shared)
    late.finish()
    return (out, ends) if z is None else (out, ends, ungated)


class Target:
    """Where the results of a tile go for a part of the positions, and the sum over the states so far.

    Dimensions: out, ungated [m, w], ends [m, n] in HBM; gate [m, w]; ungated and gate are None without z.
    """

    def __init__(self, out: Any, ungated: Any, ends: Any, gate: Any) -> None:
        self.out, self.ungated, self.ends, self.gate = out, ungated, ends, gate
        self.total = None


def steps_of(tile: Any, delta: Any, softplus: bool) -> Any:
    """softplus(delta + bias), or without softplus. Dimensions: [m, w] -> [m, w] float32."""
    if not softplus and tile.bias is None and delta.dtype == nl.float32:
        return delta
    return applied(nl.softplus if softplus else nl.copy, delta, tile.bias)


def feed(late: Any, target: Target, tile: Any, step: Any, u: Any, B: Any, C: Any) -> None:
    """What every state decays by and takes in, a few states at a time; the scans follow late.

    Dimensions: step, u [m, w], B, C [128, n, w].
    """
    m, width = u.shape
    taken = combined(nl.multiply, step, u).expand_dim(1)
    for first, stop in spans(B.shape[1], together(width)):
        x = combined(nl.multiply, B[:m, first:stop, :], taken.broadcast(1, stop - first), gpsimd=True)
        decays = [decayed(step, tile, i) for i in range(first, stop)]
        late.call(target, tile, (first, stop), decays, x, C[:m, first:stop, :], u)


def take_in(target: Target, tile: Any, span: Any, decays: list[Any], x: Any, C: Any, u: Any) -> None:
    """Scan the states of a span; sum C_i h_i; after the last state add D u and store.

    Dimensions: decays of [m, w], x, C [m, k, w], u [m, w]; tile.carried [m, n] goes on to the last states.
    """
    first, stop = span
    h = wide_like(x)
    for i in range(first, stop):
        scan(h[:, i - first, :], decays[i - first], x[:, i - first, :], tile.carried[:, i : i + 1])
    copied(tile.carried[:, first:stop], h[:, :, u.shape[1] - 1])
    target.total = summed(target.total, combined(nl.multiply, h, C))
    if stop < tile.rates.shape[1]:
        return
    total = folded(target.total)
    if tile.skip is not None:
        nisa.scalar_tensor_tensor(
            dst=total, data=u, op0=nl.multiply, operand0=tile.skip, op1=nl.add, operand1=total
        )
    store(target, total)
    fetch(dst=target.ends, src=tile.carried)


def decayed(step: Any, tile: Any, i: int) -> Any:
    """exp(step A_i): what is left of state i after each step. Dimensions: [m, w] -> [m, w] float32."""
    decay = wide_like(step)
    nisa.activation(dst=decay, op=nl.exp, data=step, scale=tile.rates[:, i : i + 1])
    return decay


def scan(dst: Any, decay: Any, x: Any, initial: Any) -> None:
    """dst[t] = decay[t] dst[t-1] + x[t]. Dimensions: [m, w], initial [m, 1]."""
    nisa.tensor_tensor_scan(dst=dst, data0=decay, data1=x, initial=initial, op0=nl.multiply, op1=nl.add)


def store(target: Target, total: Any) -> None:
    """The sum; with a gate, the sum times the gate, and the sum itself beside it. Dimensions: total [m, w]."""
    result, plain = (nl.ndarray(total.shape, dtype=target.out.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.activation(dst=plain, op=nl.copy, data=total)
    if target.gate is None:
        fetch(dst=target.out, src=plain)
        return
    nisa.tensor_tensor(dst=result, data1=total, data2=target.gate, op=nl.multiply)
    fetch(dst=target.ungated, src=plain)
    fetch(dst=target.out, src=result)
