"""`nisa.activation`: a function of every element on the Scalar engine, with scale, bias and a sum for free."""

from __future__ import annotations

from nki.enums import reduce_cmd as ReduceCmd
from nki.ir.operands import ON_CHIP, TEXT, UNPACKED, attribute, destination, one_of, optional, source
from nki.ir.verify import Fault, rule
from nki.isa.activate import Activate, bias_operand, scale_operand
from nki.isa.export import instruction
from nki.isa.kinds import ACTIVATION, ALU_OP_OR_NONE
from nki.target import Target


@instruction
class activation(Activate):
    """dst[P, F] = op(data[P, F] * scale + bias) in float32; optionally the sum over F into the accumulator registers.

    `reduce_cmd` says what happens to the registers (one float32 per partition, kept between instructions and shared
    with `activation_reduce` and `activate2`): idle leaves them, reset zeroes them, reduce adds this sum to them,
    reset_reduce replaces them by it. `reduce_res` receives the registers afterwards, whatever the command: with idle,
    what an earlier instruction left there.

    Example: nisa.activation(dst=p, op=nl.exp, data=s, bias=minus_max, reduce_op=nl.add, reduce_res=row_sum,
    reduce_cmd=nisa.reduce_cmd.reset_reduce)
    Sources: nki.isa.activation; semantics rules 46, 70-75, 84-88, 177, 186.
    """

    dst = destination("P F", ON_CHIP, UNPACKED, indirect=True, doc="the function's values")
    op = attribute(ACTIVATION, doc="the function")
    data = source("P F", ON_CHIP, UNPACKED, indirect=True, doc="its argument, before scale and bias")
    bias = bias_operand()
    scale = scale_operand()
    reduce_op = attribute(ALU_OP_OR_NONE, None, doc="nl.add: how the free axis is reduced")
    reduce_res = destination("P 1", ON_CHIP, UNPACKED, default=None, doc="receives the registers at the end")
    reduce_cmd = attribute(
        one_of(ReduceCmd, "nisa.reduce_cmd"), ReduceCmd.idle, doc="what happens to the registers"
    )
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def command(self) -> ReduceCmd:
        asked: ReduceCmd = self.reduce_cmd
        return asked

    @rule("`reduce_cmd` is idle, reset, reduce or reset_reduce")
    def registers_start_at_zero(self, target: Target) -> Fault | None:
        if self.reduce_cmd is not ReduceCmd.load_reduce:
            return None
        return Fault(
            "reduce_cmd",
            found="load_reduce",
            allowed="idle, reset, reduce, reset_reduce",
            remedy="reset the registers and add the initial value to `reduce_res` afterwards",
        )

    @rule(
        "a reduction operator reduces nothing while `reduce_cmd` is idle",
        severity="warning",
    )
    def reduction_is_asked_for(self, target: Target) -> Fault | None:
        if self.reduce_op is None or self.reduce_res is None or self.reduce_cmd is not ReduceCmd.idle:
            return None
        return Fault(
            "reduce_cmd",
            found="reduce_op and reduce_res with reduce_cmd.idle: reduce_res receives what the registers held before",
            allowed="reset_reduce for the sum of this instruction, reduce to add it to the registers",
            remedy="pass reduce_cmd=nisa.reduce_cmd.reset_reduce; to read the registers only, leave `reduce_op` out",
        )
