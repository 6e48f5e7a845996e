"""`nisa.range_select`: keep the elements whose index lies in a range, with the maximum for free: masks of attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.dtypes import float32
from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.enums import reduce_cmd as ReduceCmd
from nki.errors import LimitError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import (
    FLOAT32,
    FLOATS,
    INTEGER,
    NUMBER,
    ON_CHIP,
    TEXT,
    attribute,
    destination,
    optional,
    source,
)
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.accumulating import AccumulatingInstruction, command_attribute
from nki.isa.alu import alu
from nki.isa.apply import float_operand
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.isa.kinds import operators
from nki.target import Target

FP32_MIN = float(np.finfo(np.float32).min)
INDEX_MOST = 1 << 24  # beyond, float32 does not hold every integer

COMPARISON = operators(
    "nl.equal, nl.less, nl.less_equal, nl.greater or nl.greater_equal",
    lambda operator: operator.compare and operator.name != "not_equal",
)
MAXIMUM = operators("nl.maximum", lambda operator: operator.name == "maximum")


@instruction
class range_select(AccumulatingInstruction):
    """dst[P, i] = on_true_tile[P, i] where (j comp_op0 bound0[P]) and (j comp_op1 bound1[P]), else FP32_MIN.

    j = range_start + i is the index within the flattened free dimensions. Indices and bounds are compared in float32,
    so indices stay below 2^24. The maximum over i of the float32 result goes into the accumulator registers of the
    Vector engine: `reset_reduce` (the default) starts from minus infinity, `reduce` goes on; `reduce_res` receives
    them. FP32_MIN becomes minus infinity in a narrow `dst`; a float32 `reduce_res` keeps FP32_MIN, and then
    exp(dst - reduce_res) of a row without any selected element is 0 instead of NaN.
    Sources: nki.isa.range_select; release notes of 0.2.0, 0.3.0 and 0.6.0; semantics rules 74-77, 177.
    """

    since = nc_version.gen3
    engines = (Engine.vector,)
    layout = "declared"

    dst = destination("P F", ON_CHIP, doc="the selection")
    on_true_tile = source("P F", ON_CHIP, FLOATS, doc="what is kept inside the range")
    comp_op0 = attribute(COMPARISON, doc="compares the index with `bound0`")
    comp_op1 = attribute(COMPARISON, doc="compares the index with `bound1`")
    bound0 = source("P 1", ON_CHIP, FLOAT32, doc="one bound per partition")
    bound1 = source("P 1", ON_CHIP, FLOAT32, doc="the other bound")
    reduce_cmd = command_attribute(ReduceCmd.reset_reduce)
    reduce_res = destination("P 1", ON_CHIP, default=None, doc="receives the accumulators")
    reduce_op = attribute(MAXIMUM, alu("maximum"), doc="nl.maximum, the only reduction")
    range_start = attribute(INTEGER, 0, doc="index of the first element")
    on_false_value = attribute(NUMBER, FP32_MIN, doc="written outside the range: FP32_MIN, nothing else")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def array_shapes(self) -> dict[str, Shape]:
        column = (self.dst.partitions, 1)
        flat = (self.dst.partitions, self.dst.free)
        columns = {"bound0": column, "bound1": column, "reduce_res": column}
        return {"dst": flat, "on_true_tile": flat, **columns}

    @rule("`on_false_value` is FP32_MIN, as the hardware knows no other (semantics rule 76)")
    def fill_is_the_least(self, target: Target) -> Fault | None:
        if float_operand(self.on_false_value) == FP32_MIN:
            return None
        return Fault(
            operand="on_false_value",
            found=self.on_false_value,
            allowed=f"{FP32_MIN}, the least float32",
            remedy="leave `on_false_value` out, or use nisa.select_reduce or nisa.affine_select for other values",
        )

    @rule("`range_start` is a 32-bit integer")
    def start_fits(self, target: Target) -> Fault | None:
        if -(1 << 31) <= self.range_start < 1 << 31:
            return None
        return Fault(
            operand="range_start",
            found=self.range_start,
            allowed=f"{-(1 << 31)} to {(1 << 31) - 1}",
            remedy="subtract a multiple of the tile size from `range_start` and from the bounds",
            error=LimitError,
        )

    @rule("indices are compared in float32 and must stay below 2^24 (semantics rule 77)", severity="warning")
    def indices_are_exact(self, target: Target) -> Fault | None:
        last = max(abs(self.range_start), abs(self.range_start + self.dst.free - 1))
        if last <= INDEX_MOST:
            return None
        return Fault(
            operand="range_start",
            found=f"indices {self.range_start} to {self.range_start + self.dst.free - 1}",
            allowed=f"-{INDEX_MOST} to {INDEX_MOST}",
            remedy="subtract a multiple of the tile size from `range_start` and from the bounds",
        )

    @rule("a narrow `dst` holds minus infinity: `reduce_res` should be float32 (rule 76)", severity="warning")
    def maximum_is_wide(self, target: Target) -> Fault | None:
        if self.reduce_res is None or self.reduce_res.dtype is float32 or self.dst.dtype is float32:
            return None
        return Fault(
            operand=f"reduce_res: {self.reduce_res.describe()}",
            found=str(self.reduce_res.dtype),
            allowed="float32",
            remedy="allocate `reduce_res` as float32: dst - reduce_res of a masked row is NaN otherwise",
        )

    def semantics(self, a: Any) -> Steps:
        indices = np.arange(self.dst.free, dtype=np.int64) + self.range_start
        row = indices.astype(np.float32)[None, :]
        outside, other = (a.scratch(a.dst.shape, np.bool_) for _ in range(2))
        yield self.comp_op0.function, (row, a.bound0, outside)
        yield self.comp_op1.function, (row, a.bound1, other)
        yield np.logical_and, (outside, other, outside)
        yield np.logical_not, (outside, outside)
        yield np.copyto, (a.dst, a.on_true_tile)
        yield np.copyto, (a.dst, np.float32(FP32_MIN), "same_kind", outside)
        yield from self.reduction(a, self.reduce_op, a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (SDK 2.26 API text): an element per cycle, the reduction included."""
        return elementwise_phases(self, target, self.dst, (self.on_true_tile,), modes=False)
