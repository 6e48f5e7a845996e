"""`nisa.memset`: fill a tile with a constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.errors import OperandDtypeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps, engine_choice
from nki.ir.operands import ANY_DTYPE, NUMBER, ON_CHIP, TEXT, attribute, destination, optional
from nki.ir.verify import Fault, rule
from nki.isa.apply import bits, constant
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.target import Target


@instruction
class memset(ComputeInstruction):
    """dst[P, F] = value, on the Vector or GpSimd engine.

    A number for an integer tile must be an integer; a float tile takes any number, converted once with rounding to
    nearest even. Tiles of a packed type take 0 only.
    Sources: nki.isa.memset; migration notes of 0.3.0; semantics rule 24.
    """

    dst = destination("P F", ON_CHIP, ANY_DTYPE, doc="the tile to fill")
    value = attribute(NUMBER, doc="the constant, of the class (integer or float) of `dst`")
    engine = engine_choice(Engine.vector, Engine.gpsimd)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    @rule("the value must be of the class of `dst` (semantics rule 24)")
    def value_fits_class(self, target: Target) -> Fault | None:
        dtype = self.dst.dtype
        if dtype.kind == "packed" and self.value != 0:
            return Fault(
                operand="value",
                found=self.value,
                allowed=f"0, as `dst` is {dtype}",
                remedy="load other values with nisa.dma_copy",
                error=OperandDtypeError,
                text=f"a tile of the packed type {dtype} can be filled with 0 only",
            )
        if isinstance(self.value, float) and (dtype.is_integer or dtype.kind == "bool"):
            return Fault(
                operand="value",
                found=f"the float {self.value!r} for {self.dst.describe()}",
                allowed="an integer",
                remedy=f"pass value={int(self.value)}" if np.isfinite(self.value) else "pass an integer",
                error=OperandDtypeError,
                text=f"`value` is a float, but `dst` is {dtype}",
            )
        return None

    @rule("the value must fit the integer type of `dst`", severity="warning")
    def value_fits_width(self, target: Target) -> Fault | None:
        dtype = self.dst.dtype
        if not dtype.is_integer:
            return None
        limits = np.iinfo(dtype.numpy)
        if limits.min <= self.value <= limits.max:
            return None
        return Fault(
            operand="value",
            found=self.value,
            allowed=f"{limits.min} to {limits.max} for {dtype}",
            remedy="only the low bits are stored; pass the number they stand for",
        )

    def semantics(self, a: Any) -> Steps:
        stored = a.dst.dtype
        if self.dst.dtype.kind == "packed":
            value = np.zeros((), stored)
        elif self.dst.dtype.is_integer:
            value = np.array(int(self.value) % (1 << 8 * stored.itemsize), f"u{stored.itemsize}")
        else:
            with np.errstate(over="ignore"):
                value = np.array(self.value, np.float64).astype(np.float32)
            value = constant(value, self.dst.dtype, stored)
        yield np.copyto, (bits(a.dst), bits(value))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        half = self.value == 0 and self.dst.dtype in (dtypes.bfloat16, dtypes.float16)
        speed = 2 if half and self.engine is Engine.vector else 1
        cycles = stream_cycles(target, (self.dst,))
        return (streaming_phase(target, self.engine, -(-cycles // speed), (self.dst,)),)
