"""`nisa.tensor_tensor_scan`: a recurrence along the free dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import BOOLEAN, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.alu import AluOp
from nki.isa.apply import Array, float_operand
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.isa.kinds import BINARY_ARITHMETIC_OP
from nki.target import Target

CYCLES_PER_ELEMENT = 2  # PUBLISHED, SDK 2.26 API text
BLOCK = 256  # steps whose transposed copies stay in the cache of the host

Row = tuple[Array, Array, Array]


@instruction
class tensor_tensor_scan(ComputeInstruction):
    """dst[P, i] = (data0[P, i] op0 dst[P, i - 1]) op1 data1[P, i], on the Vector engine.

    `initial`, a number or a column (P, 1), stands for the element before the first. Everything is computed in
    float32: what is carried on is the float32 value, not what a narrower `dst` stores. `reverse0` puts `data0` on the
    right of `op0`, `reverse1` puts `data1` on the left of `op1`. Several free axes are one, in row-major order.
    Sources: nki.isa.tensor_tensor_scan; semantics rules 53, 80.
    """

    engines = (Engine.vector,)
    layout = "declared"

    dst = destination("P F", ON_CHIP, doc="all states")
    data0 = source("P F", ON_CHIP, doc="what is combined with the state before")
    data1 = source("P F", ON_CHIP, doc="what is combined with the result of `op0`")
    initial = source("P 1", ON_CHIP, scalar=True, doc="the first state: a number or a column")
    op0 = attribute(BINARY_ARITHMETIC_OP, doc="combines `data0` and the state")
    op1 = attribute(BINARY_ARITHMETIC_OP, doc="combines that with `data1`")
    reverse0 = attribute(BOOLEAN, False, doc="state op0 data0 instead of data0 op0 state")
    reverse1 = attribute(BOOLEAN, False, doc="data1 op1 (...) instead of (...) op1 data1")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def array_shapes(self) -> dict[str, Shape]:
        flat = (self.dst.partitions, self.dst.free)
        return {"dst": flat, "data0": flat, "data1": flat, "initial": (self.dst.partitions, 1)}

    @rule("`data0` and `data1` cannot both live in psum (semantics rule 53)")
    def one_input_in_psum(self, target: Target) -> Fault | None:
        return self.both_in_psum("data0", "data1")

    def semantics(self, a: Any) -> Steps:
        lanes, length = a.dst.shape
        block = min(length, BLOCK)
        x, y, out = (a.scratch((block, lanes)) for _ in range(3))
        rows = list(zip(x, y, out))
        state = a.scratch((lanes,))
        initial = a.initial[:, 0] if isinstance(a.initial, np.ndarray) else float_operand(a.initial)
        yield np.copyto, (state, initial)
        for start in range(0, length, block):
            stop = min(start + block, length)
            steps = stop - start
            yield np.copyto, (x[:steps], a.data0[:, start:stop].T)
            yield np.copyto, (y[:steps], a.data1[:, start:stop].T)
            yield _scan, (self.op0, self.reverse0, self.op1, self.reverse1, rows[:steps], state)
            yield np.copyto, (a.dst[:, start:stop].T, out[:steps])

    def cost(self, target: Target) -> tuple[Phase, ...]:
        tiles = (self.data0, self.data1)
        return elementwise_phases(self, target, self.dst, tiles, modes=False, weight=CYCLES_PER_ELEMENT)


def _scan(op0: AluOp, reverse0: bool, op1: AluOp, reverse1: bool, rows: list[Row], state: Array) -> None:
    """The recurrence over (data0, data1, result) rows, each one step of all partitions; `state` is carried on."""
    combine, finish = op0.function, op1.function
    before = state
    for x, y, out in rows:
        if reverse0:
            combine(before, x, out)
        else:
            combine(x, before, out)
        if reverse1:
            finish(y, out, out)
        else:
            finish(out, y, out)
        before = out
    np.copyto(state, before)
