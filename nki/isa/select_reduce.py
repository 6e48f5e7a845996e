"""`nisa.select_reduce`: choose between a tile and a value by a predicate, with the maximum for free."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.enums import reduce_cmd as ReduceCmd
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import (
    BOOLEAN,
    FLOATS,
    ON_CHIP,
    TEXT,
    UNPACKED,
    Operand,
    attribute,
    destination,
    optional,
    source,
)
from nki.ir.verify import Fault, rule
from nki.isa.accumulating import AccumulatingInstruction, command_attribute
from nki.isa.alu import alu
from nki.isa.apply import float_operand
from nki.isa.costs import accumulator_phase, pair_phases
from nki.isa.export import instruction
from nki.isa.range_select import MAXIMUM
from nki.target import Target

_SELECTED = UNPACKED - {dtypes.tfloat32, dtypes.int32, dtypes.uint32}
# bool_ is not in the documented list, but the public test of the instruction passes it.
_PREDICATES = frozenset({dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.bool_})


@instruction
class select_reduce(AccumulatingInstruction):
    """dst[P, F] = on_true[P, F] where predicate[P, F] is not 0, else on_false[P], on the Vector engine.

    `on_false` is a number (float32) or a column. `reverse_pred` exchanges the sides: `on_true` is taken where the
    predicate is 0. With `reset_reduce` or `reduce` the maximum over F of the float32 result goes into the accumulator
    registers (from minus infinity, or from what they hold), and `reduce_res` receives them.
    Sources: nki.isa.select_reduce; semantics rules 18, 45, 53, 74, 75, 176, 177, 179.
    """

    engines = (Engine.vector,)

    dst = destination("P F", ON_CHIP, doc="the selection")
    predicate = source("P F", ON_CHIP, _PREDICATES, doc="0 or not 0")
    on_true = source("P F", ON_CHIP, _SELECTED, doc="what is taken where the predicate is not 0")
    on_false = source("P 1", ON_CHIP, scalar=True, doc="what is taken elsewhere: a number or a column")
    reduce_res = destination("P 1", ON_CHIP, FLOATS, default=None, doc="receives the accumulators")
    reduce_cmd = command_attribute(ReduceCmd.idle)
    reduce_op = attribute(MAXIMUM, alu("maximum"), doc="nl.maximum, the only reduction")
    reverse_pred = attribute(BOOLEAN, False, doc="take `on_true` where the predicate is 0")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute_of(self, operand: Operand) -> str:
        return "raw" if operand.name == "predicate" else "float32"

    @rule("`on_true` and `predicate` cannot both live in psum (semantics rule 53)")
    def one_input_in_psum(self, target: Target) -> Fault | None:
        return self.both_in_psum("on_true", "predicate")

    def semantics(self, a: Any) -> Steps:
        other = a.scratch(a.dst.shape, np.bool_)
        yield np.not_equal if self.reverse_pred else np.equal, (a.predicate, a.predicate.dtype.type(0), other)
        yield np.copyto, (a.dst, a.on_true)
        yield np.copyto, (a.dst, float_operand(a.on_false), "same_kind", other)
        yield from self.reduction(a, self.reduce_op, a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: the ports of `tensor_copy_predicated`; reading the accumulators as in `tensor_scalar_reduce`."""
        phases = pair_phases(self, target, self.dst, (self.on_true, self.predicate), modes=False)
        return phases if self.reduce_res is None else (*phases, accumulator_phase(target, self.engine))
