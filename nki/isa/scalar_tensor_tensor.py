"""`nisa.scalar_tensor_tensor`: an operator with a number or column, then one with a second tile."""

from __future__ import annotations

from typing import Any

from nki import dtypes
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import BOOLEAN, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.verify import Fault, rule
from nki.isa.apply import apply, float_operand
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import pair_phases
from nki.isa.export import instruction
from nki.isa.kinds import ARITHMETIC_OP, BINARY_ARITHMETIC_OP
from nki.target import Target


@instruction
class scalar_tensor_tensor(ComputeInstruction):
    """dst[P, F] = (data[P, F] op0 operand0) op1 operand1[P, F], on the Vector engine.

    `operand0` is a number or a column (P, 1) of any type. Both operators are arithmetic; everything is computed in
    float32 and rounded once. `reverse0` and `reverse1` put the operand on the left.
    Sources: nki.isa.scalar_tensor_tensor; semantics rules 2, 53, 190.
    """

    engines = (Engine.vector,)

    dst = destination("P F", ON_CHIP, doc="the results")
    data = source("P F", ON_CHIP, doc="the tile")
    op0 = attribute(ARITHMETIC_OP, doc="the operator with `operand0`")
    operand0 = source("P 1", ON_CHIP, scalar=True, nullable=True, doc="a number or a column")
    op1 = attribute(BINARY_ARITHMETIC_OP, doc="the operator with `operand1`")
    operand1 = source("P F", ON_CHIP, doc="the second tile")
    reverse0 = attribute(BOOLEAN, False, doc="operand0 op0 data instead of data op0 operand0")
    reverse1 = attribute(BOOLEAN, False, doc="operand1 op1 (...) instead of (...) op1 operand1")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    @rule("`data` and `operand1` cannot both live in psum (semantics rule 53)")
    def one_input_in_psum(self, target: Target) -> Fault | None:
        return self.both_in_psum("data", "operand1")

    @rule("a unary operator takes None or 0, a binary one an operand (semantics rule 89)")
    def operand_matches_operator(self, target: Target) -> Fault | None:
        return self.unary_operand_given("op0", "operand0") or self.binary_operand_missing("op0", "operand0")

    def semantics(self, a: Any) -> Steps:
        yield apply(self.op0, a.data, float_operand(a.operand0), a.dst, self.reverse0)
        yield apply(self.op1, a.dst, a.operand1, a.dst, self.reverse1)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        bfloat16 = self.data.dtype is dtypes.bfloat16 and self.operand1.dtype is dtypes.bfloat16
        single = (
            bfloat16 and (self.op0.name, self.op1.name) == ("subtract", "multiply") and self.dst.free % 2 == 0
        )
        return pair_phases(self, target, self.dst, (self.data, self.operand1), single=single)
