"""`nisa.tensor_scalar_cumulative`: an operator with a number or column, then a running sum, product or extremum."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.enums import reduce_cmd as ReduceCmd
from nki.errors import ArgumentError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import FLOAT32, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.accumulating import AccumulatingInstruction, command_attribute
from nki.isa.apply import Array, apply, float_operand
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.isa.kinds import ARITHMETIC_OP, operators
from nki.target import Target

_DTYPES = frozenset(
    {dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.uint8, dtypes.uint16, dtypes.int8, dtypes.int16}
    | {dtypes.float8_e4m3, dtypes.float8_e4m3fn, dtypes.float8_e5m2}
)
_RUNNING = {
    "add": np.add,
    "subtract": np.add,  # of alternating signs, see `_alternate`
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@instruction
class tensor_scalar_cumulative(AccumulatingInstruction):
    """dst[P, i] = (src[P, i] op0 imm0) op1 dst[P, i - 1], carried in the accumulator registers of the Vector engine.

    Everything is computed and carried on in float32, rounded only for `dst`. What stands before the first element is
    the identity of `op1` (`reset_reduce`, the default), what the registers hold (`reduce`), or `imm1`
    (`load_reduce`). With subtract the running value is on the right: x - register. `imm0` and `imm1` are numbers or
    float32 columns. Several free axes are one, in row-major order.
    Sources: nki.isa.tensor_scalar_cumulative; semantics rules 74, 79, 176, 190.
    """

    engines = (Engine.vector,)
    layout = "declared"
    commands = (ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)

    dst = destination("P F", ON_CHIP, _DTYPES, indirect=True, doc="all running values")
    src = source("P F", ON_CHIP, _DTYPES, indirect=True, doc="the tile")
    op0 = attribute(ARITHMETIC_OP, doc="the operator with `imm0`")
    op1 = attribute(
        operators(
            "nl.add, nl.subtract, nl.multiply, nl.maximum or nl.minimum", lambda op: op.name in _RUNNING
        ),
        doc="combines that with the running value",
    )
    imm0 = source(
        "P 1", ON_CHIP, FLOAT32, scalar=True, nullable=True, doc="a number or a column; None or 0 if unary"
    )
    imm1 = source("P 1", ON_CHIP, FLOAT32, scalar=True, default=None, doc="the start of `load_reduce`")
    reduce_cmd = command_attribute(ReduceCmd.reset_reduce)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def array_shapes(self) -> dict[str, Shape]:
        flat = (self.dst.partitions, self.dst.free)
        column = (self.dst.partitions, 1)
        return {"dst": flat, "src": flat, "imm0": column, "imm1": column}

    @rule("a unary operator takes None or 0, a binary one an operand (semantics rule 89)")
    def operand_matches_operator(self, target: Target) -> Fault | None:
        return self.unary_operand_given("op0", "imm0") or self.binary_operand_missing("op0", "imm0")

    @rule("`imm1` goes with load_reduce (semantics rule 74)")
    def start_is_given(self, target: Target) -> Fault | None:
        if self.reduce_cmd is not ReduceCmd.load_reduce or self.imm1 is not None:
            return None
        return Fault(
            operand="imm1",
            found="None",
            allowed="a number or a float32 column",
            remedy="pass imm1=... or another reduce_cmd",
            error=ArgumentError,
            text="`imm1` is missing, but reduce_cmd is load_reduce",
        )

    @rule("`imm1` is used by load_reduce only (semantics rule 74)", severity="warning")
    def start_is_used(self, target: Target) -> Fault | None:
        if self.reduce_cmd is ReduceCmd.load_reduce or self.imm1 is None:
            return None
        return Fault(
            operand="imm1",
            found=f"imm1 with reduce_cmd.{self.reduce_cmd.name}",
            allowed="nisa.reduce_cmd.load_reduce",
            remedy="pass reduce_cmd=nisa.reduce_cmd.load_reduce or leave `imm1` out",
        )

    def semantics(self, a: Any) -> Steps:
        registers = a.state(self.states[0])
        values = a.scratch(a.dst.shape)
        yield apply(self.op0, a.src, float_operand(a.imm0), values)
        if self.reduce_cmd is not ReduceCmd.reset_reduce:
            before = registers if self.reduce_cmd is ReduceCmd.reduce else float_operand(a.imm1)
            yield apply(self.op1, values[:, :1], before, values[:, :1])
        signs = np.where(np.arange(a.dst.shape[1]) % 2, np.float32(-1), np.float32(1))
        if self.op1.name == "subtract":
            yield np.multiply, (values, signs, values)
        yield _RUNNING[self.op1.name].accumulate, (values, 1, None, values)
        if self.op1.name == "subtract":
            yield _alternate, (values, signs)
        yield np.copyto, (registers, values[:, -1:])
        yield np.copyto, (a.dst, values)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: an element per cycle, a recurrence of one input; no figure is published."""
        return elementwise_phases(self, target, self.dst, (self.src,), modes=False)


def _alternate(values: Array, signs: Array) -> None:
    """From the running sum of (-1)^i x[i] to the running x[i] - r[i - 1], which is (-1)^i times it, bit for bit."""
    np.multiply(values, signs, values)
    np.add(values, np.float32(0), values)  # x - x is +0, not -0
