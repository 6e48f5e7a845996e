"""`nisa.activation_reduce`: `nisa.activation` that always sums, in its older form."""

from __future__ import annotations

from nki.enums import reduce_cmd as ReduceCmd
from nki.ir.operands import ON_CHIP, TEXT, UNPACKED, attribute, destination, optional, source
from nki.isa.activate import Activate, bias_operand, scale_operand
from nki.isa.export import instruction
from nki.isa.kinds import ACTIVATION, ALU_OP


@instruction
class activation_reduce(Activate):
    """dst[P, F] = op(data[P, F] * scale + bias) in float32, and reduce_res[P, 1] = its sum over F.

    The same as `activation` with `reduce_cmd=reset_reduce`. `reduce_res=None` leaves the sum in the registers, for a
    later instruction to read or to add to. The elementwise result may be thrown away into a `dst` of step 0.
    Sources: nki.isa.activation_reduce; semantics rules 36, 70, 75, 177, 186.
    """

    dst = destination("P F", ON_CHIP, UNPACKED, indirect=True, doc="the function's values")
    op = attribute(ACTIVATION, doc="the function")
    data = source("P F", ON_CHIP, UNPACKED, indirect=True, doc="its argument, before scale and bias")
    reduce_op = attribute(ALU_OP, doc="nl.add: how the free axis is reduced")
    reduce_res = destination(
        "P 1", ON_CHIP, UNPACKED, nullable=True, doc="receives the sum; None keeps it inside"
    )
    bias = bias_operand()
    scale = scale_operand()
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def command(self) -> ReduceCmd:
        return ReduceCmd.reset_reduce
