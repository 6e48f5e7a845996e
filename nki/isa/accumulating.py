"""What instructions with a built-in reduction share: the commands on the accumulator registers, and reading them out.

`accumulate.py` has the steps themselves. The registers belong to the engine and live on from one instruction to the
next, which is how a reduction is carried over several tiles (semantics rules 72, 74, 75).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nki.enums import reduce_cmd as ReduceCmd
from nki.ir.effects import VECTOR_ACCUMULATOR
from nki.ir.instruction import Steps
from nki.ir.operands import attribute, one_of
from nki.ir.verify import Fault, rule
from nki.isa.accumulate import accumulate
from nki.isa.alu import AluOp
from nki.isa.apply import Array
from nki.isa.compute import ComputeInstruction
from nki.target import Target


def command_attribute(default: ReduceCmd) -> Any:
    """Declare `reduce_cmd`."""
    return attribute(one_of(ReduceCmd, "nisa.reduce_cmd"), default, doc="what happens to the accumulators")


class AccumulatingInstruction(ComputeInstruction, abstract=True):
    """An instruction that may fold its float32 results, before they are rounded, into `states[0]`."""

    states = (VECTOR_ACCUMULATOR,)
    commands: ClassVar[tuple[ReduceCmd, ...]] = (ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce)

    reduce_cmd: Any
    reduce_res: Any = None

    @rule("`reduce_cmd` is a command that the instruction has (semantics rule 74)")
    def command_exists(self, target: Target) -> Fault | None:
        if self.reduce_cmd in self.commands:
            return None
        names = ", ".join(f"nisa.reduce_cmd.{command.name}" for command in self.commands)
        return Fault(
            operand="reduce_cmd",
            found=f"nisa.reduce_cmd.{self.reduce_cmd.name}",
            allowed=names,
            remedy=f"pass one of {names}",
        )

    @rule("an idle instruction leaves the accumulators undefined (semantics rule 74)", severity="warning")
    def something_is_reduced(self, target: Target) -> Fault | None:
        if self.reduce_cmd is not ReduceCmd.idle or self.reduce_res is None:
            return None
        return Fault(
            operand="reduce_res",
            found="reduce_res with reduce_cmd.idle: it receives what the accumulators happen to hold",
            allowed="reset_reduce for this tile alone, reduce to go on with earlier ones",
            remedy="pass reduce_cmd=nisa.reduce_cmd.reset_reduce, or leave `reduce_res` out",
        )

    def reduction(self, a: Any, operator: AluOp, values: Array, start: Any = None) -> Steps:
        """The calls on the registers, and their read-out."""
        if self.reduce_cmd is ReduceCmd.idle and self.reduce_res is None:
            return
        registers = a.state(self.states[0])
        yield from accumulate(a, registers, operator, self.reduce_cmd, values, start)
        if self.reduce_res is not None:
            yield np.copyto, (a.reduce_res, registers)
