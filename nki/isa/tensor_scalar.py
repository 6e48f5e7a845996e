"""`nisa.tensor_scalar`: up to two operators between a tile and numbers or columns."""

from __future__ import annotations

from typing import Any

from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.errors import ArgumentError, OperatorError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps, engine_choice
from nki.ir.operands import BOOLEAN, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Access
from nki.ir.verify import Fault, rule
from nki.isa.alu import AluOp
from nki.isa.apply import (
    INT32_LINEAR,
    INT32_TYPES,
    apply,
    apply_exact,
    bit_operand,
    bits,
    float_operand,
    integer_operand,
)
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import GPSIMD_FUNCTION_CYCLES, elementwise_phases
from nki.isa.export import instruction
from nki.isa.kinds import ALU_OP, ALU_OP_OR_NONE
from nki.target import Target

TRN2_SCALAR_FORMS = (("multiply", "add"), ("multiply", None), ("add", None))


@instruction
class tensor_scalar(ComputeInstruction):
    """dst[P, F] = (data[P, F] op0 operand0) op1 operand1, on the Vector, Scalar or GpSimd engine.

    An operand is a number or a column (P, 1), the same for a whole partition; `reverse0` and `reverse1` put it on
    the left. Both operators are arithmetic, computed in float32 and rounded once, or both work on the bits of
    integers. A unary operator takes `None` or 0 as its operand. If all tiles are int32 or uint32, the numbers are
    Python integers and the operators add, subtract or multiply, the result is exact (32 bits, wrapping around).
    Sources: nki.isa.tensor_scalar; trainium3_arch.rst (Scalar engine); semantics rules 9, 10, 14, 89, 92, 176.
    """

    dst = destination("P F", ON_CHIP, indirect=True, doc="the results")
    data = source("P F", ON_CHIP, indirect=True, doc="the tile")
    op0 = attribute(ALU_OP, doc="the first operator")
    operand0 = source(
        "P 1", ON_CHIP, scalar=True, nullable=True, doc="a number or a column; None or 0 if `op0` is unary"
    )
    reverse0 = attribute(BOOLEAN, False, doc="operand0 op0 data instead of data op0 operand0")
    op1 = attribute(ALU_OP_OR_NONE, None, doc="the second operator, if any")
    operand1 = source("P 1", ON_CHIP, scalar=True, default=None, doc="a number or a column for `op1`")
    reverse1 = attribute(BOOLEAN, False, doc="operand1 op1 (...) instead of (...) op1 operand1")
    engine = engine_choice(Engine.vector, Engine.scalar, Engine.gpsimd)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def _terms(self) -> list[tuple[AluOp, Any, bool]]:
        """The operators with their operands and order."""
        terms = [(self.op0, self.operand0, self.reverse0), (self.op1, self.operand1, self.reverse1)]
        return [term for term in terms if term[0] is not None]

    def compute(self) -> str:
        if self.op0.kind == "bitvec":
            return "raw"
        return "int32" if self.engine is not Engine.scalar and self._is_address_form() else "float32"

    def _is_address_form(self) -> bool:
        """Whether this is the exact 32-bit integer form, which the pages mention as address arithmetic."""
        tiles = all(access.dtype in INT32_TYPES for _, access in self.accesses())
        return tiles and all(
            op.name in INT32_LINEAR and isinstance(value, (int, Access)) for op, value, _ in self._terms()
        )

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        operators = [op for op, _, _ in self._terms()]
        if any(op.kind == "bitvec" for op in operators):
            return None if engine is Engine.vector else "bit operators run on the Vector engine only"
        special = [op.name for op in operators if Engine.vector not in op.engines]
        if engine is Engine.gpsimd:
            return None if special else "GpSimd runs it for rsqrt and power only"
        if special:
            return f"nl.{special[0]} runs on the GpSimd engine only"
        return _scalar_engine_fault(self.op0, self.op1, target) if engine is Engine.scalar else None

    @rule("32-bit integer arithmetic does not go by tensor indirection (semantics rule 43)")
    def addresses_are_direct(self, target: Target) -> Fault | None:
        if not self.by_offsets() or self.compute() != "int32":
            return None
        return Fault(
            operand="dst, data",
            found="a view made by .indirect() with 32-bit integers",
            allowed="views with a regular pattern",
            remedy="gather into a tile first: nisa.tensor_copy(dst=tile, src=view)",
        )

    @rule("both operators are arithmetic or both work on bits (semantics rule 10)")
    def operators_are_of_one_class(self, target: Target) -> Fault | None:
        if self.op1 is None or self.op0.kind == self.op1.kind:
            return None
        return Fault(
            operand="op0 and op1",
            found=f"nl.{self.op0.name} ({self.op0.kind}) and nl.{self.op1.name} ({self.op1.kind})",
            allowed="two arithmetic operators, or two bit operators",
            remedy="use two instructions",
            error=OperatorError,
        )

    @rule("bit operators take integer tiles and integer numbers (semantics rule 9)")
    def bit_operators_take_integers(self, target: Target) -> Fault | None:
        if self.op0.kind != "bitvec":
            return None
        for name in ("operand0", "operand1"):
            if isinstance(self.__dict__[name], float):
                return Fault(
                    operand=name,
                    found=f"the float {self.__dict__[name]!r}",
                    allowed="an integer",
                    remedy="pass an integer",
                    error=ArgumentError,
                    text=f"`{name}` is a float, but bit operators take integers only",
                )
        return self.non_integers()

    @rule("a unary operator takes None or 0, a binary one an operand (semantics rule 89)")
    def operands_match_operators(self, target: Target) -> Fault | None:
        for op, operand in (("op0", "operand0"), ("op1", "operand1")):
            fault = self.unary_operand_given(op, operand) or self.binary_operand_missing(op, operand)
            if fault is not None:
                return fault
        if self.op1 is None and self.operand1 is not None:
            return Fault(
                operand="operand1",
                found="operand1 without op1",
                allowed="both or neither",
                remedy="pass op1=... or leave operand1 out",
                text="`operand1` is given, but `op1` is not",
            )
        return None

    @rule("operand tiles of arithmetic operators are float32 (semantics rule 176)", severity="note")
    def operands_are_float32(self, target: Target) -> Fault | None:
        return None if self.op0.kind == "bitvec" or self._is_address_form() else self.narrow_operand()

    def semantics(self, a: Any) -> Steps:
        mode = self.compute()
        x, out = (bits(a.data), bits(a.dst)) if mode == "raw" else (a.data, a.dst)
        for (op, _, reverse), value in zip(self._terms(), (a.operand0, a.operand1)):
            if mode == "raw":
                yield apply(op, x, bit_operand(value, x), out, reverse)
            elif mode == "int32":
                yield apply_exact(op, x, integer_operand(value, x), out, reverse)
            else:
                yield apply(op, x, float_operand(value), out, reverse)
            x = out

    def cost(self, target: Target) -> tuple[Phase, ...]:
        weight = GPSIMD_FUNCTION_CYCLES if self.engine is Engine.gpsimd else 1
        return elementwise_phases(self, target, self.dst, (self.data,), weight=weight)


def _scalar_engine_fault(op0: AluOp, op1: AluOp | None, target: Target) -> str | None:
    """Why the Scalar engine of this generation lacks the pair of operators."""
    if target.scalar_tensor_scalar:
        return None
    if target.version is nc_version.gen2:
        return "the trn1 Scalar engine has no tensor_scalar; use nisa.activation"
    if (op0.name, op1.name if op1 else None) in TRN2_SCALAR_FORMS:
        return None
    return f"the {target.name} Scalar engine has multiply with add, multiply, and add only"
