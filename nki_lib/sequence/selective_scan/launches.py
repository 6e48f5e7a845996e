"""Launches of the selective scan's kernels: one for each batch element and up to CHANNELS channels.

The sequence is filled up to one of a few lengths with steps of 0, in which no state changes and nothing is taken in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import nki.language as nl
from nki.torch import run_into
from nki_lib.common.rows import bucket
from nki_lib.sequence.lengths import filled
from nki_lib.sequence.selective_scan.backward import selective_scan_backward as backward_kernel
from nki_lib.sequence.selective_scan.channels import parts_of
from nki_lib.sequence.selective_scan.kernel import selective_scan as kernel

CHANNELS = 16 * nl.tile_size.pmax
"""The most channels of a launch: its program has an instruction for every few states of each tile and part."""


@dataclass(frozen=True)
class Scan:
    """The tensors of a call, as the front door has them."""

    u: Tensor
    delta: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor | None
    z: Tensor | None
    delta_bias: Tensor | None
    delta_softplus: bool

    def filled(self) -> Scan:
        """The same with one of a few lengths. A step of softplus(-inf) is 0; with a bias alone no one value is."""
        length = (
            bucket(self.u.shape[2]) if self.delta_softplus or self.delta_bias is None else self.u.shape[2]
        )
        nothing = float("-inf") if self.delta_softplus else 0.0
        delta = filled(self.delta, length, nothing)
        u, B, C, z = (filled(t, length) for t in (self.u, self.B, self.C, self.z))
        return replace(self, u=u, delta=delta, B=B, C=C, z=z)

    def pieces(self) -> Iterator[tuple[int, slice]]:
        """Batch elements and channels of each launch."""
        for element in range(self.u.shape[0]):
            for start in range(0, self.u.shape[1], CHANNELS):
                yield element, slice(start, start + CHANNELS)

    def arguments(self, element: int, rows: slice) -> tuple[Tensor | None, ...]:
        """The kernels' tensors of a piece."""
        u, delta, z = (None if t is None else t[element, rows] for t in (self.u, self.delta, self.z))
        A, D, bias = (None if t is None else t[rows] for t in (self.A, self.D, self.delta_bias))
        return u, delta, A, self.B[element], self.C[element], D, z, bias


def scan_into(outs: list[Tensor], scan: Scan) -> None:
    """Write y [b, d, l], ends [b, parts, d, n], and with z y before the gate [b, d, l]."""
    length, parts = outs[0].shape[2], outs[1].shape[1]
    whole = scan.filled()
    for element, rows in scan.pieces():
        y, ends, *plain = outs
        targets = [y[element, rows], ends[element, :, rows], *(t[element, rows] for t in plain)]
        arguments = *whole.arguments(element, rows), scan.delta_softplus
        if whole.u.shape[2] == length:
            run_into(targets, kernel, *arguments)
            continue
        found = kernel(*arguments)
        for target, values in zip(targets, (found[0][:, :length], found[1][:parts], *found[2:])):
            target.copy_(values[:, :length] if target.dim() == 2 else values)


def gradients(
    scan: Scan, grad: Tensor, ends: Tensor, of_ends: Tensor | None, plain: Tensor | None
) -> list[Tensor]:
    """Of u, delta [b, d, l], B, C [b, n, l], A [d, n], D, delta_bias [d], and of z [b, d, l], if there is z.

    The sums over batch elements and pieces of channels are float32, in the order of the launches.
    """
    length, states = scan.u.shape[2], scan.A.shape[1]
    whole = scan.filled()
    padded = whole.u.shape[2]
    parts = parts_of(padded, states)
    grad, plain = filled(grad, padded), filled(plain, padded)
    ends, of_ends = (None if t is None else more_parts(t, parts) for t in (ends, of_ends))
    of_u, of_delta = torch.empty_like(grad), torch.empty_like(grad)
    of_z = None if scan.z is None else torch.empty_like(grad)
    of_b, of_c = (torch.zeros(grad.shape[0], states, padded, dtype=torch.float32) for _ in range(2))
    sums = torch.zeros(scan.A.shape[0], states + 2, dtype=torch.float32)
    for element, rows in scan.pieces():
        mine = [None if t is None else t[element, rows] for t in (grad, plain)]
        borders = [None if t is None else t[element, :, rows] for t in (ends, of_ends)]
        arguments = *whole.arguments(element, rows), borders[0], mine[1], borders[1], scan.delta_softplus
        found = backward_kernel(mine[0], *arguments)
        of_u[element, rows], of_delta[element, rows] = found[0], found[1]
        of_b[element] += found[2]
        of_c[element] += found[3]
        sums[rows] += found[4]
        if of_z is not None:
            of_z[element, rows] = found[5]
    shared = [t[..., :length].to(scan.B.dtype).contiguous() for t in (of_b, of_c)]
    cut = [t[..., :length].contiguous() for t in (of_u, of_delta)]
    vectors = [sums[:, :states].clone(), sums[:, states].clone(), sums[:, states + 1].clone()]
    return [*cut, *shared, *vectors, *([] if of_z is None else [of_z[..., :length].contiguous()])]


def more_parts(states: Tensor, parts: int) -> Tensor:
    """States after each part, or their gradients, with parts that nobody asks for. Dimensions: [b, parts, d, n]."""
    missing = parts - states.shape[1]
    if missing <= 0:
        return states
    return torch.cat([states, states.new_zeros(states.shape[0], missing, *states.shape[2:])], 1)
