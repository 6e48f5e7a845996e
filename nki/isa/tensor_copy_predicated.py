"""`nisa.tensor_copy_predicated`: copy elements where a predicate holds, and leave the others alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.errors import OperandDtypeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import BOOLEAN, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Access
from nki.ir.verify import Fault, rule
from nki.isa.apply import bit_operand, bits, constant, float_operand
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import elementwise_phases, pair_phases
from nki.isa.export import instruction
from nki.target import Target

# bool_ is not in the documented list, but the public test of the instruction passes it.
_PREDICATES = frozenset({dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.bool_})


@instruction
class tensor_copy_predicated(ComputeInstruction):
    """dst[P, F] = src[P, F] where predicate[P, F] is not 0; elsewhere `dst` keeps what it holds.

    `src` is a tile of the dtype of `dst`, copied bit by bit, or a number. `reverse_pred` copies where the predicate
    is 0.
    Sources: nki.isa.tensor_copy_predicated; release notes of 0.6.0; semantics rules 18, 45, 53, 179.
    """

    engines = (Engine.vector,)

    dst = destination("P F", ON_CHIP, reads=True, indirect=True, doc="partly overwritten")
    src = source("P F", ON_CHIP, scalar=True, doc="what is copied: a tile or a number")
    predicate = source("P F", ON_CHIP, _PREDICATES, indirect=True, doc="0 or not 0")
    reverse_pred = attribute(BOOLEAN, False, doc="copy where the predicate is 0")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    @rule("`src` and `predicate` cannot both live in psum (semantics rule 53)")
    def one_input_in_psum(self, target: Target) -> Fault | None:
        return self.both_in_psum("src", "predicate") if isinstance(self.src, Access) else None

    @rule("`src` and `dst` have one dtype (semantics rule 18)")
    def dtypes_agree(self, target: Target) -> Fault | None:
        if not isinstance(self.src, Access) or self.src.dtype is self.dst.dtype:
            return None
        return Fault(
            operand=f"src: {self.src.describe()}",
            found=f"{self.src.dtype} to {self.dst.dtype}",
            allowed=str(self.dst.dtype),
            remedy="copy `src` into a tile of the dtype of `dst` first: nisa.tensor_copy",
            error=OperandDtypeError,
            text=f"`src` is {self.src.dtype}, but `dst` is {self.dst.dtype}",
        )

    def semantics(self, a: Any) -> Steps:
        out = bits(a.dst)
        value = a.src
        if not isinstance(value, np.ndarray):
            value = self._number(a.src, a.dst.dtype)
        chosen = a.scratch(a.dst.shape, np.bool_)
        yield (
            np.equal if self.reverse_pred else np.not_equal,
            (a.predicate, a.predicate.dtype.type(0), chosen),
        )
        yield np.copyto, (out, bit_operand(value, out), "same_kind", chosen)

    def _number(self, value: float, storage: np.dtype[Any]) -> Any:
        """The number as `dst` stores it; an integer in an integer tile keeps its low bits."""
        if self.dst.dtype.is_integer and isinstance(value, int):
            return np.array(value % (1 << 8 * storage.itemsize), f"u{storage.itemsize}")
        return constant(float_operand(value), self.dst.dtype, storage)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (SDK 2.26 API text): two cycles an element from SBUF alone, one if one input is in PSUM.

        ESTIMATE: one cycle for a number as `src`, which leaves one input to be read.
        """
        if not isinstance(self.src, Access):
            return elementwise_phases(self, target, self.dst, (self.predicate,), modes=False)
        return pair_phases(self, target, self.dst, (self.src, self.predicate), modes=False)
