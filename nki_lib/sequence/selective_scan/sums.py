"""Where the gradients of the selective scan go: sums over the channels, over the positions, and the results in HBM.

Letters: see `channels.py`.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch
from nki_lib.sequence.columns import sum_of
from nki_lib.sequence.selective_scan.channels import combined


class SharedSums:
    """The gradients of B and C in one part of the positions: sums over all channels, in PSUM.

    A state has its row there: the column of ones that sums over the partitions stands in the column of that row, among
    zeros. Dimensions: of_b, of_c [n, w] in PSUM, their targets [n, l] in HBM.
    """

    def __init__(self, states: int, span: Any, of_b: Any, of_c: Any) -> None:
        self.states = states
        width = span[1] - span[0]
        self.targets = of_b[:, span[0] : span[1]], of_c[:, span[0] : span[1]]
        self.totals = [nl.ndarray((states, width), dtype=nl.float32, buffer=nl.psum) for _ in range(2)]
        self.ones = nl.ndarray((nl.tile_size.pmax, 2 * states - 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=self.ones, value=0.0)
        nisa.memset(dst=self.ones[:, states - 1 : states], value=1.0)

    def add(self, first: int, of_b: Any, of_c: Any) -> None:
        """Products of some states. Dimensions: [m, k, w] float32."""
        m, count, _ = of_b.shape
        for i in range(count):
            low = self.states - 1 - first - i
            rows = self.ones[:m, low : low + self.states]
            for total, products in zip(self.totals, (of_b, of_c)):
                nisa.nc_matmul(dst=total, stationary=rows, moving=products[:, i, :])

    def store(self) -> None:
        """After the last channels."""
        for total, target in zip(self.totals, self.targets):
            tile = nl.ndarray(total.shape, dtype=target.dtype, buffer=nl.sbuf)
            nisa.activation(dst=tile, op=nl.copy, data=total)
            fetch(dst=target, src=tile)


class Results:
    """All gradients in HBM. A tile of channels adds up its sums over the positions in SBUF."""

    def __init__(self, u: Any, states: int, gated: bool) -> None:
        channels, length = u.shape
        narrow = [nl.ndarray(u.shape, dtype=u.dtype, buffer=nl.shared_hbm) for _ in range(3 if gated else 2)]
        self.of_u, self.of_delta = narrow[:2]
        self.of_z = narrow[2] if gated else None
        self.of_b, self.of_c = (
            nl.ndarray((states, length), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2)
        )
        self.sums = nl.ndarray((channels, states + 2), dtype=nl.float32, buffer=nl.shared_hbm)
        self.totals: dict[int, Any] = {}

    def tensors(self) -> tuple[Any, ...]:
        """What the kernel returns."""
        first = self.of_u, self.of_delta, self.of_b, self.of_c, self.sums
        return first if self.of_z is None else (*first, self.of_z)

    def store(self, target: Any, job: Any, op: Any, left: Any, right: Any) -> None:
        """left op right, at the place of the job. Dimensions: [m, w]."""
        tile = nl.ndarray(left.shape, dtype=target.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=tile, data1=left, data2=right, op=op)
        self.put(target, job, tile)

    def put(self, target: Any, job: Any, tile: Any) -> None:
        """The tile, at the place of the job. Dimensions: target [d, l] in HBM, tile [m, w]."""
        fetch(dst=target[job.tile.rows, job.span[0] : job.span[1]], src=tile)

    def finish(self, job: Any, pull: Any, turned: Any) -> None:
        """Of u and delta, and the sums. Dimensions: pull (sum of B_i G_i), turned (sum of A_i q_i) [m, w]."""
        self.store_u(job, pull)
        of_step = combined(nl.add, combined(nl.multiply, pull, job.u), turned)
        if job.rise is not None:
            of_step = combined(nl.multiply, of_step, job.rise)
        narrow = nl.ndarray(of_step.shape, dtype=self.of_delta.dtype, buffer=nl.sbuf)
        nisa.activation(dst=narrow, op=nl.copy, data=of_step)
        self.put(self.of_delta, job, narrow)
        states = job.tile.rates.shape[1]
        sum_of(job.sums[:, states : states + 1], combined(nl.multiply, job.slope, job.u))
        sum_of(job.sums[:, states + 1 :], of_step)
        self.add_sums(job)

    def store_u(self, job: Any, pull: Any) -> None:
        """pull * step, plus D g. Dimensions: pull [m, w]."""
        if job.tile.skip is None:
            self.store(self.of_u, job, nl.multiply, pull, job.step)
            return
        narrow = nl.ndarray(pull.shape, dtype=self.of_u.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=narrow,
            data=job.slope,
            op0=nl.multiply,
            operand0=job.tile.skip,
            op1=nl.add,
            operand1=combined(nl.multiply, pull, job.step),
        )
        self.put(self.of_u, job, narrow)

    def add_sums(self, job: Any) -> None:
        """Those of a part, on top of the parts after it; after the first part, store."""
        start = job.tile.rows.start
        if start in self.totals:
            nisa.tensor_tensor(dst=self.totals[start], data1=self.totals[start], data2=job.sums, op=nl.add)
        else:
            self.totals[start] = job.sums
        if job.part == 0:
            fetch(dst=self.sums[job.tile.rows, :], src=self.totals[start])
