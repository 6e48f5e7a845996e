"""`nisa.tensor_scalar_reduce`: an operator with a number or column, and a fold of the result into the accumulators."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.enums import reduce_cmd as ReduceCmd
from nki.errors import ArgumentError
from nki.ir.cost import Phase
from nki.ir.effects import VECTOR_ACCUMULATOR
from nki.ir.instruction import Steps
from nki.ir.operands import (
    BOOLEAN,
    FLOAT32,
    ON_CHIP,
    TEXT,
    attribute,
    destination,
    one_of,
    optional,
    source,
)
from nki.ir.verify import Fault, rule
from nki.isa.accumulate import accumulate
from nki.isa.apply import apply, float_operand
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import accumulator_phase, elementwise_phases
from nki.isa.export import instruction
from nki.isa.kinds import ARITHMETIC_OP, operators
from nki.target import Target

FOLDS = ("add", "multiply", "maximum", "minimum")
COMMANDS = (ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)


@instruction
class tensor_scalar_reduce(ComputeInstruction):
    """dst[P, F] = data[P, F] op0 operand0, and reduce_res[P, 1] = fold of it with reduce_op, on the Vector engine.

    The fold goes over all free axes of the float32 results, before they are rounded to the type of `dst`, into the
    accumulator registers of the engine: `reset_reduce` starts from the identity of `reduce_op`, `reduce` goes on from
    what the registers hold, `load_reduce` from `reduce_init`. `reduce_res` receives the registers (their negative
    with `reduce_res_negate`), or is left out to go on folding with a later instruction.
    Sources: nki.isa.tensor_scalar_reduce; semantics rules 74, 75, 89, 177, 190.
    """

    engines = (Engine.vector,)
    states = (VECTOR_ACCUMULATOR,)

    dst = destination("P F", ON_CHIP, indirect=True, doc="the results of `op0`")
    data = source("P F", ON_CHIP, indirect=True, doc="the tile")
    op0 = attribute(ARITHMETIC_OP, doc="the operator")
    operand0 = source(
        "P 1", ON_CHIP, scalar=True, nullable=True, doc="a number or a column; None or 0 if `op0` is unary"
    )
    reduce_op = attribute(
        operators("nl.add, nl.multiply, nl.maximum or nl.minimum", lambda op: op.name in FOLDS),
        doc="add, multiply, maximum or minimum",
    )
    reduce_res = destination("P 1", ON_CHIP, default=None, doc="receives the accumulators")
    reverse0 = attribute(BOOLEAN, False, doc="operand0 op0 data instead of data op0 operand0")
    reduce_cmd = attribute(
        one_of(ReduceCmd, "nisa.reduce_cmd"), ReduceCmd.reset_reduce, doc="where the fold starts from"
    )
    reduce_init = source(
        "P 1", ON_CHIP, FLOAT32, scalar=True, default=None, doc="the start of `load_reduce`, float32"
    )
    reduce_res_negate = attribute(BOOLEAN, False, doc="write the negative; the registers keep their sign")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    @rule("a unary operator takes None or 0, a binary one an operand (semantics rule 89)")
    def operand_matches_operator(self, target: Target) -> Fault | None:
        return self.unary_operand_given("op0", "operand0") or self.binary_operand_missing("op0", "operand0")

    @rule("reduce_cmd is reset_reduce, reduce or load_reduce (semantics rule 74)")
    def command_exists(self, target: Target) -> Fault | None:
        if self.reduce_cmd in COMMANDS:
            return None
        return Fault(
            operand="reduce_cmd",
            found=f"nisa.reduce_cmd.{self.reduce_cmd.name}",
            allowed=", ".join(f"nisa.reduce_cmd.{command.name}" for command in COMMANDS),
            remedy="use nisa.tensor_scalar if nothing is to be reduced",
        )

    @rule("reduce_init goes with load_reduce (semantics rule 74)")
    def start_is_given(self, target: Target) -> Fault | None:
        if self.reduce_cmd is not ReduceCmd.load_reduce or self.reduce_init is not None:
            return None
        return Fault(
            operand="reduce_init",
            found="None",
            allowed="a number or a float32 column",
            remedy="pass reduce_init=... or another reduce_cmd",
            error=ArgumentError,
            text="`reduce_init` is missing, but reduce_cmd is load_reduce",
        )

    @rule("reduce_init is used by load_reduce only (semantics rule 74)", severity="warning")
    def start_is_used(self, target: Target) -> Fault | None:
        if self.reduce_cmd is ReduceCmd.load_reduce or self.reduce_init is None:
            return None
        return Fault(
            operand="reduce_init",
            found=f"reduce_init with reduce_cmd.{self.reduce_cmd.name}",
            allowed="nisa.reduce_cmd.load_reduce",
            remedy="pass reduce_cmd=nisa.reduce_cmd.load_reduce or leave reduce_init out",
        )

    @rule("reverse0 is documented as not supported yet (semantics rule 190)", severity="note")
    def order_is_supported(self, target: Target) -> Fault | None:
        if not self.reverse0:
            return None
        return Fault(
            operand="reverse0",
            found=True,
            allowed="False",
            remedy="the compiler for the chip may refuse it; use nisa.tensor_scalar and nisa.tensor_reduce",
        )

    @rule("a column as operand0 is float32 (semantics rule 176)", severity="note")
    def operand_is_float32(self, target: Target) -> Fault | None:
        return self.narrow_operand()

    def semantics(self, a: Any) -> Steps:
        yield apply(self.op0, a.data, float_operand(a.operand0), a.dst, self.reverse0)
        registers = a.state(VECTOR_ACCUMULATOR)
        yield from accumulate(a, registers, self.reduce_op, self.reduce_cmd, a.dst, a.reduce_init)
        if a.reduce_res is not None:
            yield (
                np.negative if self.reduce_res_negate else np.copyto,
                _written(a.reduce_res, registers, self),
            )

    def cost(self, target: Target) -> tuple[Phase, ...]:
        phases = elementwise_phases(self, target, self.dst, (self.data,), modes=False)
        return phases if self.reduce_res is None else (*phases, accumulator_phase(target, self.engine))


def _written(result: Any, registers: Any, call: Any) -> tuple[Any, ...]:
    return (registers, result) if call.reduce_res_negate else (result, registers)
