"""The pass of the Scalar engine that `nisa.activation` and `nisa.activation_reduce` share: meaning, rules and cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nki import dtypes, errors
from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.enums import reduce_cmd as ReduceCmd
from nki.ir.cost import Phase
from nki.ir.effects import SCALAR_ACCUMULATOR
from nki.ir.instruction import Steps
from nki.ir.operands import FLOAT32, ON_CHIP, UNPACKED, source
from nki.ir.verify import Fault, rule
from nki.isa.apply import float_operand
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import accumulator_phase, elementwise_phases
from nki.target import Target

_NO_TABLE = "any"
_REDUCES = (ReduceCmd.reduce, ReduceCmd.reset_reduce)
_BIAS_DTYPES = UNPACKED - {dtypes.tfloat32}


def bias_operand() -> Any:
    """Declare `bias`: a number or one per partition."""
    return source(
        "P 1", ON_CHIP, _BIAS_DTYPES, scalar=True, default=None, doc="added: (P, 1), or a number from trn2 on"
    )


def scale_operand() -> Any:
    """Declare `scale`: a number or one per partition."""
    return source("P 1", ON_CHIP, FLOAT32, scalar=True, default=1.0, doc="multiplied: a number or (P, 1)")


class Activate(ComputeInstruction, abstract=True):
    """dst = op(data * scale + bias), and the sum of each partition into the accumulator registers, all in float32.

    The sum is of the float32 results, before they are rounded to the dtype of `dst` (semantics rule 177), and
    `reduce_res` is written last, so it may lie inside `dst` (rule 46).
    """

    engines = (Engine.scalar,)
    states = (SCALAR_ACCUMULATOR,)

    dst: Any
    op: Any
    data: Any
    bias: Any
    scale: Any
    reduce_op: Any
    reduce_res: Any

    def command(self) -> ReduceCmd:
        """What happens to the accumulator registers."""
        raise NotImplementedError

    @rule("`bias` may be a number from trn2 on")
    def bias_is_a_column(self, target: Target) -> Fault | None:
        if target.version > nc_version.gen2 or not isinstance(self.bias, (int, float)):
            return None
        return Fault(
            "bias",
            found=f"{self.bias!r} on {target.name}",
            allowed=f"None or a (P, 1) tile on {target.name}",
            remedy="fill a (P, 1) tile with nisa.memset and pass it; leave `bias` out if it is zero",
        )

    @rule("reciprocal takes no bias on trn1")
    def reciprocal_without_bias(self, target: Target) -> Fault | None:
        if target.version > nc_version.gen2 or self.op.name != "reciprocal" or self.bias is None:
            return None
        return Fault(
            "bias",
            found=f"op=nl.reciprocal with a bias on {target.name}",
            allowed="no bias; any on trn2 and later",
            remedy="add the bias before with nisa.tensor_scalar",
        )

    @rule("`reduce_op` is nl.add, the only reduction of the Scalar engine")
    def sums_only(self, target: Target) -> Fault | None:
        if self.reduce_op is None or self.reduce_op.name == "add":
            return None
        return Fault(
            "reduce_op",
            found=f"nl.{self.reduce_op.name}",
            allowed="nl.add",
            remedy="reduce with nisa.tensor_reduce on the Vector engine instead",
            error=errors.OperatorError,
        )

    @rule("a reduction needs its operator")
    def operator_is_given(self, target: Target) -> Fault | None:
        if self.reduce_op is not None or self.command() not in _REDUCES:
            return None
        return Fault(
            "reduce_op",
            found=f"reduce_op=None with reduce_cmd.{self.command().name}",
            allowed="nl.add",
            remedy="pass reduce_op=nl.add",
        )

    def semantics(self, a: Any) -> Steps:
        value = a.data
        if not (isinstance(a.scale, (int, float)) and a.scale == 1):
            yield np.multiply, (value, float_operand(a.scale), a.dst)
            value = a.dst
        if not (a.bias is None or (isinstance(a.bias, (int, float)) and a.bias == 0)):
            yield np.add, (value, float_operand(a.bias), a.dst)
            value = a.dst
        if self.op.name != "copy":
            yield self.op.function, (value, a.dst)
        elif value is not a.dst:
            yield np.copyto, (a.dst, value)
        yield from self._reduction(a)

    def _reduction(self, a: Any) -> Steps:
        """The calls on the accumulator registers, and their read-out."""
        command = self.command()
        if command is ReduceCmd.idle and a.reduce_res is None:
            return
        registers: NDArray[np.float32] = a.state(SCALAR_ACCUMULATOR)
        free_axes = tuple(range(1, a.dst.ndim))
        if command is ReduceCmd.reset_reduce:
            yield np.add.reduce, (a.dst, free_axes, None, registers, True)
        elif command is ReduceCmd.reduce:
            total = a.scratch(registers.shape, np.float32)
            yield np.add.reduce, (a.dst, free_axes, None, total, True)
            yield np.add, (registers, total, registers)
        elif command is ReduceCmd.reset:
            yield registers.fill, (0.0,)
        if a.reduce_res is not None:
            yield np.copyto, (a.reduce_res, registers)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        table = None if self.op.table == _NO_TABLE else self.op.table
        phases = elementwise_phases(self, target, self.dst, (self.data,), modes=False, table=table)
        if self.reduce_res is None:
            return phases
        return (*phases, accumulator_phase(target, Engine.scalar))
