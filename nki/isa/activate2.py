"""`nisa.activate2`: two steps of arithmetic, a function of every element and a reduction, on the trn3 Scalar engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import errors
from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.enums import reduce_cmd as ReduceCmd
from nki.ir.cost import Phase
from nki.ir.effects import SCALAR_ACCUMULATOR
from nki.ir.instruction import Steps
from nki.ir.operands import BOOLEAN, ON_CHIP, TEXT, Kind, Symbol, attribute, destination, optional, source
from nki.ir.program import Access
from nki.ir.verify import Fault, rule
from nki.isa.accumulating import AccumulatingInstruction, command_attribute
from nki.isa.alu import AluOp, alu, as_alu_op, token_name
from nki.isa.apply import apply, float_operand
from nki.isa.costs import accumulator_phase, elementwise_phases
from nki.isa.export import instruction
from nki.isa.kinds import ACTIVATION, operators
from nki.target import Target

BYPASS = AluOp("bypass", "arith", 1, np.positive, "x as it is")
PAIRS = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
)
"""What (op0, op1) may be."""

FOLDS = ("add", "maximum", "minimum", "abs_max", "abs_min")


def _stage(value: Any) -> AluOp:
    if value is None or value is BYPASS or token_name(value) == BYPASS.name:
        return BYPASS
    return as_alu_op(value)


STAGE_OP = Kind(
    "nl.multiply, nl.add, nl.subtract or nl.bypass",
    _stage,
    lambda value: str(value.name),
    lambda value: _stage(value.text if isinstance(value, Symbol) else value),
)


def _immediate(doc: str) -> Any:
    return source("P 1", ON_CHIP, scalar=True, nullable=True, doc=doc)


@instruction
class activate2(AccumulatingInstruction):
    """dst[P, F] = op((data[P, F] op0 imm0) op1 imm1) in float32, and a reduction of it over F into the registers.

    (op0, op1) is (multiply, add), (multiply, subtract), (multiply, bypass), (add, bypass), (subtract, bypass) or
    (bypass, bypass). `imm0` and `imm1`, numbers or columns, must be passed even where they are bypassed, and may be
    `None` there. `reverse0` and `reverse1` put them on the left. `relu_param` is the slope of nl.prelu for negative
    inputs. The registers are those of `nisa.activation`: `reset` and `reset_reduce` start from the identity of
    `reduce_op` (0 for abs_max and infinity for abs_min, inferred), `reduce` goes on; `reduce_res` receives them.
    Sources: nki.isa.activate2; trainium3_arch.rst; semantics rules 72, 75, 177, 187.
    """

    since = nc_version.gen4
    engines = (Engine.scalar,)
    states = (SCALAR_ACCUMULATOR,)
    commands = (ReduceCmd.idle, ReduceCmd.reset, ReduceCmd.reset_reduce, ReduceCmd.reduce)

    dst = destination("P F", ON_CHIP, indirect=True, doc="the function's values")
    op = attribute(ACTIVATION, doc="the function")
    data = source("P F", ON_CHIP, indirect=True, doc="what the arithmetic starts from")
    imm0 = _immediate("a number or a column for `op0`")
    imm1 = _immediate("a number or a column for `op1`")
    op0 = attribute(STAGE_OP, doc="multiply, add, subtract or bypass")
    op1 = attribute(STAGE_OP, doc="add or subtract after a multiplication, else bypass")
    relu_param = source("P 1", ON_CHIP, scalar=True, default=0.0, doc="the slope of nl.prelu below 0")
    reverse0 = attribute(BOOLEAN, False, doc="imm0 op0 data instead of data op0 imm0")
    reverse1 = attribute(BOOLEAN, False, doc="imm1 op1 (...) instead of (...) op1 imm1")
    reduce_op = attribute(
        optional(
            operators(
                "nl.add, nl.maximum, nl.minimum, nl.abs_max or nl.abs_min",
                lambda operator: operator.name in FOLDS,
            )
        ),
        None,
        doc="how the free axis is reduced",
    )
    reduce_res = destination("P 1", ON_CHIP, default=None, doc="receives the registers at the end")
    reduce_cmd = command_attribute(ReduceCmd.idle)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    @rule("`op0` and `op1` are one of six pairs (semantics rule 187)")
    def pair_exists(self, target: Target) -> Fault | None:
        if (self.op0.name, self.op1.name) in PAIRS:
            return None
        return Fault(
            operand="op0 and op1",
            found=f"(nl.{self.op0.name}, nl.{self.op1.name})",
            allowed=", ".join(f"(nl.{first}, nl.{second})" for first, second in PAIRS),
            remedy="do the rest with nisa.tensor_scalar before",
            error=errors.OperatorError,
        )

    @rule("a step that is no bypass has its number or column")
    def immediates_are_given(self, target: Target) -> Fault | None:
        return self.binary_operand_missing("op0", "imm0") or self.binary_operand_missing("op1", "imm1")

    @rule("`reverse0` and `reverse1` need an operator to reverse")
    def something_is_reversed(self, target: Target) -> Fault | None:
        for flag, op in (("reverse0", "op0"), ("reverse1", "op1")):
            if self.__dict__[flag] and self.__dict__[op] is BYPASS:
                return Fault(
                    operand=flag,
                    found=f"{flag}=True with {op}=nl.bypass",
                    allowed="False",
                    remedy=f"leave `{flag}` out or pass another `{op}`",
                    text=f"`{flag}` is True, but `{op}` is nl.bypass",
                )
        return None

    @rule("`imm0` and `imm1` have one dtype if both are tensors (semantics rule 176)")
    def immediates_agree(self, target: Target) -> Fault | None:
        tiles = [value for value in (self.imm0, self.imm1) if isinstance(value, Access)]
        if len({tile.dtype for tile in tiles}) < 2:
            return None
        return Fault(
            operand="imm0 and imm1",
            found=" and ".join(str(tile.dtype) for tile in tiles),
            allowed="one dtype",
            remedy="copy one of them into a tile of the other's dtype: nisa.tensor_copy",
            error=errors.OperandDtypeError,
        )

    @rule("a reduction needs its operator")
    def operator_is_given(self, target: Target) -> Fault | None:
        if self.reduce_op is not None or self.reduce_cmd not in (ReduceCmd.reduce, ReduceCmd.reset_reduce):
            return None
        return Fault(
            operand="reduce_op",
            found=f"reduce_op=None with reduce_cmd.{self.reduce_cmd.name}",
            allowed=", ".join(f"nl.{name}" for name in FOLDS),
            remedy="pass reduce_op=nl.add",
            error=errors.ArgumentError,
        )

    def semantics(self, a: Any) -> Steps:
        value = a.data
        steps = ((self.op0, a.imm0, self.reverse0), (self.op1, a.imm1, self.reverse1))
        for operator, immediate, reverse in steps:
            if operator is not BYPASS:
                yield apply(operator, value, float_operand(immediate), a.dst, reverse)
                value = a.dst
        if self.op.name == "prelu":
            yield self.op.function, (value, a.dst, float_operand(a.relu_param))
        elif self.op.name != "copy":
            yield self.op.function, (value, a.dst)
        elif value is not a.dst:
            yield np.copyto, (a.dst, value)
        yield from self.reduction(a, self.reduce_op or alu("add"), a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: as `nisa.activation`, whose datapath it shares; no figure is published."""
        table = None if self.op.table == "any" else self.op.table
        phases = elementwise_phases(self, target, self.dst, (self.data,), modes=False, table=table)
        return phases if self.reduce_res is None else (*phases, accumulator_phase(target, self.engine))
