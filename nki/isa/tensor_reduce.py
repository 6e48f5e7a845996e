"""`nisa.tensor_reduce`: fold the last free axes of a tile with an operator."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.errors import OperandDtypeError, OperandShapeError, OperatorError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import BOOLEAN, INTEGERS_LIST, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import bits, fold
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.isa.kinds import REDUCE_OP
from nki.target import Target


@instruction
class tensor_reduce(ComputeInstruction):
    """dst[P, F'] = fold of data[P, ...] with op over the last free axes, on the Vector engine.

    `axis` numbers axes of `data` (negative ones count from the end); they must be the last ones, and axis 0 stays.
    Arithmetic operators fold in float32 with one rounding at the end, and `negate` flips the sign of the result; bit
    operators fold the bits of integers. A fold with subtract is the first element minus all others.
    `dst` has as many elements per partition as there are left, in any shape: `keepdims` changes nothing else.
    Sources: nki.isa.tensor_reduce; semantics rules 12, 78, 188.
    """

    engines = (Engine.vector,)
    layout = "declared"

    dst = destination("P *", ON_CHIP, indirect=True, doc="the results")
    op = attribute(
        REDUCE_OP, doc="add, subtract, multiply, maximum, minimum, or a bitwise or logical and, or, xor"
    )
    data = source("P *", ON_CHIP, indirect=True, doc="the tile to fold")
    axis = attribute(INTEGERS_LIST, doc="one axis, or several")
    negate = attribute(BOOLEAN, False, doc="multiply the result by -1")
    keepdims = attribute(BOOLEAN, False, doc="the folded axes stay with size 1")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw" if self.op.kind == "bitvec" else "float32"

    def _axes(self) -> tuple[int, ...]:
        rank = len(self.data.shape)
        return tuple(sorted(axis + rank if axis < 0 else axis for axis in self.axis))

    def _kept(self) -> Shape:
        shape: Shape = self.data.shape
        return shape[: len(shape) - len(self.axis)]

    def array_shapes(self) -> dict[str, Shape]:
        return {"data": self.data.shape, "dst": self._kept()}

    @rule("the axes are the last free axes of `data` (semantics rule 78)")
    def axes_are_last(self, target: Target) -> Fault | None:
        rank, axes = len(self.data.shape), self._axes()
        if axes and 0 not in axes and axes == tuple(range(rank - len(axes), rank)):
            return None
        last = [tuple(range(first, rank)) for first in range(rank - 1, 0, -1)]
        partition = "; axis 0, the partitions, cannot be reduced" if 0 in axes else ""
        return Fault(
            operand=f"axis, for data: {self.data.describe()}",
            found=self.axis if len(self.axis) != 1 else self.axis[0],
            allowed=" or ".join(map(str, last)),
            remedy="fold the last axes; use nisa.nc_transpose or a matmul with ones across partitions",
            error=OperandShapeError,
            text=f"`axis` must be the last free axes of `data`{partition}",
        )

    @rule("`dst` has one element for each that is left (semantics rule 78)")
    def destination_fits(self, target: Target) -> Fault | None:
        wanted = prod(self._kept()[1:])
        if self.dst.free == wanted:
            return None
        return Fault(
            operand=f"dst: {self.dst.describe()}",
            found=f"{self.dst.free} elements per partition",
            allowed=f"{wanted}, what axis={self.axis} leaves of {list(self.data.shape)}",
            remedy=f"allocate dst as {list(self._kept() if len(self._kept()) > 1 else (*self._kept(), 1))}",
            error=OperandShapeError,
            text=f"`dst` has {self.dst.free} elements per partition, the reduction gives {wanted}",
        )

    @rule("bit operators take integer tiles of one width and no `negate` (semantics rules 9, 188)")
    def bit_operators_take_integers(self, target: Target) -> Fault | None:
        if self.op.kind != "bitvec":
            return None
        if self.negate:
            return Fault(
                operand="negate",
                found=f"negate=True with nl.{self.op.name}",
                allowed="arithmetic operators",
                remedy="leave `negate` out",
                error=OperatorError,
                text="`negate` is for arithmetic operators only",
            )
        if self.dst.dtype.itemsize != self.data.dtype.itemsize and self.non_integers() is None:
            return Fault(
                operand=f"dst: {self.dst.describe()}",
                found=f"{self.data.dtype} to {self.dst.dtype}",
                allowed=f"an integer type of {self.data.dtype.itemsize} bytes",
                remedy="reduce into a tile of the same width and cast it with nisa.tensor_copy",
                error=OperandDtypeError,
                text="bit operators change no width: `dst` and `data` differ",
            )
        return self.non_integers()

    def semantics(self, a: Any) -> Steps:
        data, dst = (bits(a.data), bits(a.dst)) if self.op.kind == "bitvec" else (a.data, a.dst)
        yield fold(self.op, data, self._axes(), dst)
        if self.negate:
            yield np.negative, (dst, dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        bfloat16 = self.data.dtype is dtypes.bfloat16 and self.dst.dtype is dtypes.bfloat16
        halves = 2 if bfloat16 and self.op.name in ("add", "maximum") else 1  # PUBLISHED, SDK 2.26 API text
        cycles = -(-stream_cycles(target, (self.data,)) // halves)
        return (streaming_phase(target, self.engine, cycles, (self.dst, self.data)),)
