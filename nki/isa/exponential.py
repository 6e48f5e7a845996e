"""`nisa.exponential`: the heart of a softmax, on the trn3 Vector engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.enums import reduce_cmd as ReduceCmd
from nki.errors import OperandShapeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import FLOAT32, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Access
from nki.ir.verify import Fault, rule
from nki.isa.accumulating import AccumulatingInstruction, command_attribute
from nki.isa.alu import alu
from nki.isa.apply import float_operand
from nki.isa.costs import accumulator_phase, stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.target import Target

DIMENSIONS = 4  # of src and dst
_FLOATS = frozenset({dtypes.float8_e4m3, dtypes.float8_e5m2, dtypes.float16, dtypes.bfloat16, dtypes.float32})
_INTEGERS = frozenset({dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint8, dtypes.uint16})
_RESULTS = _FLOATS | {dtypes.tfloat32}


@instruction
class exponential(AccumulatingInstruction):
    """dst[P, F] = exp(src[P, F] - max_value[P]) in float32, and its sum over F into the accumulator registers.

    `max_value` is a number or a float32 column. The registers are those of the Vector engine: `reset_reduce` starts
    from 0, `reduce` goes on from what they hold, `load_reduce` from `reduce_init`; `reduce_res` receives them, or is
    left out to go on with a later tile.
    Sources: nki.isa.exponential; trainium3_arch.rst (four elements a cycle); semantics rules 74, 75, 176, 177.
    """

    since = nc_version.gen4
    engines = (Engine.vector,)
    commands = (ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)

    dst = destination("P F", ON_CHIP, _RESULTS | _INTEGERS, indirect=True, doc="the exponentials")
    src = source("P F", ON_CHIP, _FLOATS | _INTEGERS | {dtypes.uint32}, indirect=True, doc="the exponents")
    max_value = source("P 1", ON_CHIP, FLOAT32, scalar=True, default=0.0, doc="subtracted before")
    reduce_res = destination("P 1", ON_CHIP, _RESULTS, default=None, doc="receives the accumulators")
    reduce_cmd = command_attribute(ReduceCmd.idle)
    reduce_init = source("P 1", ON_CHIP, FLOAT32, scalar=True, default=0.0, doc="the start of `load_reduce`")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    @rule("`src` and `dst` have up to four dimensions")
    def dimensions_are_few(self, target: Target) -> Fault | None:
        for name, access in (("dst", self.dst), ("src", self.src)):
            if len(access.shape) > DIMENSIONS:
                return Fault(
                    operand=f"{name}: {access.describe()}",
                    found=f"{len(access.shape)} dimensions",
                    allowed=f"at most {DIMENSIONS}",
                    remedy="merge free dimensions with flatten_dims or reshape",
                    error=OperandShapeError,
                    text=f"`{name}` has {len(access.shape)} dimensions, at most {DIMENSIONS} are possible",
                )
        return None

    @rule("`reduce_init` is 0 unless `reduce_cmd` is load_reduce (semantics rule 74)")
    def start_is_used(self, target: Target) -> Fault | None:
        given = isinstance(self.reduce_init, Access) or self.reduce_init != 0
        if self.reduce_cmd is ReduceCmd.load_reduce or not given:
            return None
        return Fault(
            operand="reduce_init",
            found=f"reduce_init with reduce_cmd.{self.reduce_cmd.name}",
            allowed="nothing or 0.0",
            remedy="pass reduce_cmd=nisa.reduce_cmd.load_reduce or leave `reduce_init` out",
        )

    def semantics(self, a: Any) -> Steps:
        value = a.src
        if isinstance(self.max_value, Access) or self.max_value != 0:
            yield np.subtract, (value, float_operand(a.max_value), a.dst)
            value = a.dst
        yield np.exp, (value, a.dst)
        yield from self.reduction(a, alu("add"), a.dst, a.reduce_init)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """Four elements a cycle are PUBLISHED; reading the accumulators as in `tensor_scalar_reduce` is an ESTIMATE."""
        cycles = stream_cycles(target, (self.dst, self.src))
        sides = (self.dst, self.src)
        phase = streaming_phase(target, self.engine, cycles, sides, speed=target.vector_quad_rate)
        return (phase,) if self.reduce_res is None else (phase, accumulator_phase(target, self.engine))
