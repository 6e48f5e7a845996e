"""`nisa.affine_select`: keep or replace elements by a comparison of their index, e.g. a causal mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import (
    INTEGER,
    NUMBER,
    PATTERN,
    SBUF,
    TEXT,
    attribute,
    destination,
    optional,
    register,
    source,
)
from nki.ir.verify import Fault, rule
from nki.isa.affine import affine_steps, fill_where_not, pattern_fault
from nki.isa.alu import alu
from nki.isa.apply import Array, bits, constant, float_operand
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.isa.kinds import COMPARE_OP
from nki.target import Target


@instruction
class affine_select(ComputeInstruction):
    """dst[P, i] = on_true_tile[P, i] where cmp_op(affine[P, i], 0) holds, else on_false_value, on the GpSimd engine.

    affine[P, i] = offset + p * channel_multiplier + sum of step * index over `pattern`, as in `nisa.iota`. A causal
    mask of scores[query, key] is `pattern=[[-1, keys]]`, `channel_multiplier=1`, `cmp_op=nl.greater_equal`.
    Selected elements keep their bits if the dtypes agree, else they pass through float32; `on_false_value` is a
    float32 number. A register as `offset` is read by the device.
    Sources: nki.isa.affine_select; semantics rules 18, 76, 103.
    """

    engines = (Engine.gpsimd,)

    dst = destination("P F", SBUF, doc="the selection")
    pattern = attribute(PATTERN, doc="[[step, count], ...], slowest first")
    channel_multiplier = attribute(INTEGER, doc="added once per partition before")
    on_true_tile = source("P F", SBUF, doc="what is kept where the comparison holds")
    on_false_value = attribute(NUMBER, doc="what is written elsewhere")
    cmp_op = attribute(COMPARE_OP, alu("equal"), doc="a comparison of the affine value with 0")
    offset = register(
        "in", numbers=True, default=0, doc="added to every affine value: an integer or a register"
    )
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw" if self.dst.dtype is self.on_true_tile.dtype else "float32"

    @rule("the pattern has up to four levels and as many values as `dst` (semantics rule 103)")
    def pattern_fits(self, target: Target) -> Fault | None:
        return pattern_fault(self.pattern, self.dst)

    def semantics(self, a: Any) -> Steps:
        """Selection by bit masks made while planning: exact for every type, and faster than a masked copy."""
        values = yield from affine_steps(a, self.dst.partitions, self.pattern, self.channel_multiplier)
        fill = float_operand(self.on_false_value)
        if self.compute() == "raw":
            fill = constant(fill, self.dst.dtype, a.dst.dtype)
        if isinstance(a.offset, np.ndarray):
            yield from self._selected_while_running(a, values, bits(fill))
            return
        holds = np.empty(values.shape, np.float32)
        # Of the values only the sign matters, and it survives the conversion.
        self.cmp_op.function(values.astype(np.float32), np.float32(0), holds)
        fill = bits(fill)
        kept = (holds != 0).reshape(a.dst.shape)
        mask = np.where(kept, np.array(-1, f"i{fill.itemsize}").view(fill.dtype), np.zeros_like(fill))
        yield np.bitwise_and, (bits(a.on_true_tile), mask, bits(a.dst))
        yield np.bitwise_or, (bits(a.dst), np.where(kept, np.zeros_like(fill), fill), bits(a.dst))

    def _selected_while_running(self, a: Any, values: Array, fill: Array) -> Steps:
        compared, holds = a.scratch(values.shape), a.scratch(values.shape)
        yield np.copyto, (compared, values)
        yield self.cmp_op.function, (compared, np.float32(0), holds)
        yield np.copyto, (bits(a.dst), bits(a.on_true_tile))
        yield fill_where_not, (bits(a.dst), fill, holds.reshape(a.dst.shape))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return elementwise_phases(self, target, self.dst, (self.on_true_tile,), modes=False)
