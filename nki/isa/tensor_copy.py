"""`nisa.tensor_copy`: copy a tile between on-chip memories."""

from __future__ import annotations

from typing import Any

from nki.dtypes import caster, round_tf32, tfloat32
from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.errors import OperandDtypeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps, engine_choice
from nki.ir.operands import ANY_DTYPE, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.verify import Fault, rule
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.target import Target


@instruction
class tensor_copy(ComputeInstruction):
    """dst[P, F] = src[P, F], on the Vector, Scalar or GpSimd engine.

    Equal dtypes are copied bit by bit (NaN payloads and large integers survive); different ones go through float32
    with one rounding. The trn1 Scalar engine cannot run it; `nisa.activation` with `op=nl.copy` is the substitute.
    Sources: nki.isa.tensor_copy; trainium2_arch.rst (performance modes); semantics rule 15.
    """

    dst = destination("P F", ON_CHIP, ANY_DTYPE, indirect=True, doc="the copy")
    src = source("P F", ON_CHIP, ANY_DTYPE, indirect=True, doc="the tile to copy")
    engine = engine_choice(Engine.vector, Engine.scalar, Engine.gpsimd)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    @rule("packed types are copied to the same packed type only (semantics rule 16)")
    def packed_stay_packed(self, target: Target) -> Fault | None:
        if self.dst.dtype is self.src.dtype or "packed" not in (self.dst.dtype.kind, self.src.dtype.kind):
            return None
        return Fault(
            operand="dst",
            found=f"{self.src.dtype} to {self.dst.dtype}",
            allowed=f"dst of dtype {self.src.dtype}",
            remedy="view both tiles as the same type",
            error=OperandDtypeError,
        )

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        if engine is Engine.scalar and target.version is nc_version.gen2:
            return "the trn1 Scalar engine has no tensor_copy; use nisa.activation with op=nl.copy"
        if engine is Engine.gpsimd and self.by_offsets():
            return "GpSimd does not copy by tensor indirection"
        return None

    def semantics(self, a: Any) -> Steps:
        yield from caster(a.dst, a.src)
        if self.dst.dtype is tfloat32 and self.src.dtype is not tfloat32:
            yield round_tf32, (a.dst, a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return elementwise_phases(self, target, self.dst, (self.src,))
