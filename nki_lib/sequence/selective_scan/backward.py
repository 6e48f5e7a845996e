"""The gradients of the selective scan: the states once more, part by part from the last one, and a scan in reverse.

Letters: see `channels.py`. With a = exp(step A), x = step u B and g the gradient of C h summed over the states:
  G[t] = C[t] g[t] + K[t+1] is the gradient of h[t], K[t] = a[t] G[t] that of h[t-1],
  q[t] = K[t] h[t-1] is a da: step gets sum over i of A_i q_i + u B_i G_i, A gets sum over t of step q.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, load, spans, wide_like
from nki_lib.norm.blocks import Late
from nki_lib.sequence.columns import sum_of
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
from nki_lib.sequence.selective_scan.kernel import decayed, scan, steps_of
from nki_lib.sequence.selective_scan.sums import Results, SharedSums

ELEMENTS = 1024  # of a partition in one instruction: eleven such tiles at once, and the next ones


@nki.jit
def selective_scan_backward(
    grad: Any,
    u: Any,
    delta: Any,
    A: Any,
    B: Any,
    C: Any,
    D: Any,
    z: Any,
    delta_bias: Any,
    ends: Any,
    ungated: Any,
    of_ends: Any,
    delta_softplus: bool,
) -> Any:
    """The gradients of everything that the scan was given, in float32 and in one order.

    Dimensions: grad, u, delta [d, l], A [d, n], B, C [n, l], D, delta_bias [d] or None, z [d, l] or None, ends, of_ends
    [parts, d, n] float32, of_ends may be None, ungated [d, l], None without z -> of u, delta [d, l], B, C [n, l]
    float32, sums [d, n + 2] float32, of A, D and delta_bias, and of z [d, l], if there is z.

    Pseudocode:
        for each part of the positions, the last one first:
            for each group of tiles: prepare steps, g = grad silu(z); for each tile, for a few states i at a time:
                as the forward kernel: a, x, h; GpSimd: C_i g
                Vector: K = scan in reverse of (C_i g + K) a; q; G; the sums over i, and over t
                Tensor: of C += sum over d of g h, of B += sum over d of G step u
    """
    states = A.shape[1]
    parts = spans(u.shape[1], part_width(states))
    results = Results(u, states, z is not None)
    groups, late = groups_of(A, D, delta_bias), Late(take_back)
    for p in reversed(range(len(parts))):
        span = parts[p]
        shared = load_shared(B, span), load_shared(C, span)
        sums = SharedSums(states, span, results.of_b, results.of_c)
        for group in groups:
            jobs = [Job(tile, results, sums, p, span) for tile in group]
            for job in jobs:
                job.prepare(grad, u, delta, z, ungated, delta_softplus)
                job.boundaries(ends, of_ends, len(parts))
            for job in jobs:
                last = job.tile is groups[-1][-1]
                feed(late, job, last, *shared)
    late.finish()
    return results.tensors()


class Job:
    """A tile of channels in one part of the positions.

    Dimensions: step, u, slope (g), rise (the derivative of softplus, or None) [m, w]; starts, the states before the
    part, and before, the gradient of those as results [m, n], both may be None; sums over the part [m, n + 2]; pull,
    turned: B_i G_i and A_i q_i [m, k, w], each of some states summed on a place of its own.
    """

    def __init__(self, tile: Any, results: Results, shared_sums: SharedSums, part: int, span: Any) -> None:
        self.tile, self.results, self.shared_sums, self.part, self.span = (
            tile,
            results,
            shared_sums,
            part,
            span,
        )
        self.sums = nl.ndarray((tile.size, tile.rates.shape[1] + 2), dtype=nl.float32, buffer=nl.sbuf)
        self.pull, self.turned = None, None

    def prepare(self, grad: Any, u: Any, delta: Any, z: Any, ungated: Any, softplus: bool) -> None:
        """Load, apply the functions of delta and z, and store the gradient of z."""
        tile, span = self.tile, self.span
        changes, self.u, self.slope = tile.load(delta, span), tile.load(u, span), tile.load(grad, span)
        self.step = steps_of(tile, changes, softplus)
        self.rise = applied(nl.sigmoid, changes, tile.bias) if softplus else None
        if z is not None:
            gated, opening = tile.load(z, span), self.slope
            self.slope = combined(nl.multiply, opening, applied(nl.silu, gated), gpsimd=True)
            of_gate = combined(nl.multiply, opening, tile.load(ungated, span), gpsimd=True)
            self.results.store(self.results.of_z, self, nl.multiply, of_gate, applied(nl.silu_dx, gated))
        self.taken = combined(nl.multiply, self.step, self.u, gpsimd=True)

    def boundaries(self, ends: Any, of_ends: Any, parts: int) -> None:
        """The states before the part; gradients of states that are results."""
        rows, part = self.tile.rows, self.part
        self.starts = load(ends[part - 1, rows, :]) if part > 0 else None
        self.before = load(of_ends[part - 1, rows, :]) if part > 0 and of_ends is not None else None
        if part == parts - 1 and of_ends is not None:
            fetch(dst=self.tile.carried, src=of_ends[part, rows, :])


def feed(late: Any, job: Job, last: bool, B: Any, C: Any) -> None:
    """What every state decays by, takes in, and gives, a few states at a time; the scans follow late.

    Dimensions: B, C [128, n, w].
    """
    m, width = job.u.shape
    states = B.shape[1]
    for first, stop in spans(states, together(width, ELEMENTS)):
        mine, count = slice(first, stop), stop - first
        taken, slope = (tile.expand_dim(1).broadcast(1, count) for tile in (job.taken, job.slope))
        x = combined(nl.multiply, B[:m, mine, :], taken, gpsimd=True)
        given = combined(nl.multiply, C[:m, mine, :], slope, gpsimd=True)
        decays = [decayed(job.step, job.tile, i) for i in range(first, stop)]
        late.call(job, (first, stop), decays, x, given, B[:m, mine, :], last and stop == states)


def take_back(job: Job, span: Any, decays: list[Any], x: Any, given: Any, B: Any, last: bool) -> None:
    """All gradients that some states contribute to.

    Dimensions: decays of [m, w], x, given, B [m, k, w]. h and K have one position more: h begins with the states before
    the part, K ends with what comes from the part after.
    """
    first, stop = span
    m, count, width = x.shape
    h, back = (nl.ndarray((m, count, width + 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
    if job.starts is None:
        nisa.memset(dst=h[:, :, 0], value=0.0)
    else:
        copied(h[:, :, 0], job.starts[:, first:stop])
    copied(back[:, :, width], job.tile.carried[:, first:stop])
    for i in range(count):
        state = slice(first + i, first + i + 1)
        scan(h[:, i, 1:], decays[i], x[:, i, :], 0.0 if job.starts is None else job.starts[:, state])
        scan_in_reverse(back, decays[i], given, i, job.tile.carried[:, state])
    carry(job, first, stop, back[:, :, 0])
    of_h = combined(nl.add, given, back[:, :, 1:])
    turned = combined(nl.multiply, back[:, :, :width], h[:, :, :width])
    step, taken, slope = (t.expand_dim(1).broadcast(1, count) for t in (job.step, job.taken, job.slope))
    job.shared_sums.add(first, combined(nl.multiply, of_h, taken), combined(nl.multiply, h[:, :, 1:], slope))
    job.pull = summed(job.pull, combined(nl.multiply, of_h, B))
    along = combined(nl.multiply, turned, step)
    for i in range(count):
        sum_of(job.sums[:, first + i : first + i + 1], along[:, i, :])
    add_rates(job, first, turned)
    if stop == job.tile.rates.shape[1]:
        job.results.finish(job, folded(job.pull), folded(job.turned))
    if last:
        job.shared_sums.store()


def carry(job: Job, first: int, stop: int, back: Any) -> None:
    """The gradient of the states before the part, which goes on to that part. Dimensions: back [m, k]."""
    mine = job.tile.carried[:, first:stop]
    if job.before is None:
        copied(mine, back)
    else:
        nisa.tensor_tensor(dst=mine, data1=back, data2=job.before[:, first:stop], op=nl.add)


def scan_in_reverse(back: Any, decay: Any, given: Any, i: int, initial: Any) -> None:
    """back[i, t] = (given[i, t] + back[i, t + 1]) decay[t], back[i, w] being initial.

    Dimensions: back [m, k, w + 1], decay [m, w], given [m, k, w], initial [m, 1].
    """
    width = decay.shape[1]
    nisa.tensor_tensor_scan(
        dst=backwards(back, i * (width + 1), width),
        data0=backwards(given, i * width, width),
        data1=backwards(decay, 0, width),
        initial=initial,
        op0=nl.add,
        op1=nl.multiply,
    )


def backwards(tile: Any, first: int, width: int) -> Any:
    """Elements first + width - 1 down to first of every partition. Dimensions: a whole tile [m, ...] -> [m, w]."""
    return tile.ap([[tile.strides[0], tile.shape[0]], [-1, width]], offset=first + width - 1)


def add_rates(job: Job, first: int, turned: Any) -> None:
    """job.turned += A_i q_i for some states, each on a place of its own. Dimensions: turned [m, k, w]."""
    for i in range(turned.shape[1]):
        rate = job.tile.rates[:, first + i : first + i + 1]
        if job.turned is None:
            job.turned = wide_like(turned)
        if first == 0:
            nisa.activation(dst=job.turned[:, i, :], op=nl.copy, data=turned[:, i, :], scale=rate)
        else:
            nisa.scalar_tensor_tensor(
                dst=job.turned[:, i, :],
                data=turned[:, i, :],
                op0=nl.multiply,
                operand0=rate,
                op1=nl.add,
                operand1=job.turned[:, i, :],
            )
