"""`nisa.nc_matmul_mx`: a product of microscaled matrices on the Tensor engine, SBUF to PSUM."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.errors import LimitError, OperandShapeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import (
    BOOLEAN,
    INTEGERS_LIST,
    PSUM,
    SBUF,
    TEXT,
    Operand,
    attribute,
    destination,
    optional,
    source,
)
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.isa.costs_tensor import matmul_phases
from nki.isa.export import instruction
from nki.isa.indirection import is_indirect
from nki.isa.mx import ELEMENTS, LANES, SCALES, MxInstruction, dequantize
from nki.isa.products import Product
from nki.target import Target

PACKED = frozenset(ELEMENTS)
RESULTS = frozenset({dtypes.float32, dtypes.bfloat16})


@instruction
class nc_matmul_mx(Product, MxInstruction):
    """dst[M, N] (+)= sum over K partitions and 4 lanes of stationary[K, M] * moving[K, N], each value times its scale.

    Values are dequantised to float32 (lane 0 is in the lowest bits of a packed element), products and sums are
    float32; fp8 and fp4 operands may be mixed. Scales lie as `nisa.quantize_mx` writes them: in the first four
    partitions of each quadrant of 32, at an offset of 0, 4, 8 or 12; columns beyond those of the tile are left alone.
    `accumulate` is that of `nisa.nc_matmul`; into bfloat16 each instruction's sum is rounded once. `tile_size` and
    `tile_position` choose rows of the array only and change no value.

    Sources: nki.isa.nc_matmul_mx; trainium3_arch.rst; mxfp-matmul.rst; semantics rules 60, 115-117, 119.
    """

    dst = destination("* *", PSUM, RESULTS, reads=True, indirect=True, doc="the product [M, N]")
    stationary = source("K M", SBUF, PACKED, indirect=True, doc="the operand held in the array, [K, M]")
    moving = source("K N", SBUF, PACKED, indirect=True, doc="the operand streamed through it, [K, N]")
    stationary_scale = source(
        "* *", SBUF, SCALES, indirect=True, doc="its scales, [K/8, M] spread over the quadrants"
    )
    moving_scale = source(
        "* *", SBUF, SCALES, indirect=True, doc="its scales, [K/8, N] spread over the quadrants"
    )
    tile_position = attribute(optional(INTEGERS_LIST), None, doc="first row and column of the array to use")
    tile_size = attribute(optional(INTEGERS_LIST), None, doc="rows and columns of the array to use")
    accumulate = attribute(
        optional(BOOLEAN), None, doc="add to dst, overwrite it, or decide by what was written"
    )
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def scaled(self) -> tuple[tuple[str, str], ...]:
        return (("stationary", "stationary_scale"), ("moving", "moving_scale"))

    def compute_of(self, operand: Operand) -> str:
        return "float32" if operand.name == "dst" else "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {operand.name: (a.partitions, a.free) for operand, a in self.accesses()}

    def reads(self) -> list[Access]:
        windows = [window for pair in self.scaled() for window in self.scale_windows(*pair)]
        added = [self.dst] if self.accumulate else []
        return [self.stationary, self.moving, *windows, *added, *self.index_windows()]

    @rule("the free size of `stationary` is even")
    def stationary_is_even(self, target: Target) -> Fault | None:
        if self.stationary.free % 2 == 0:
            return None
        return Fault(
            operand=f"stationary: {self.stationary.describe()}",
            found=f"M = {self.stationary.free}",
            allowed=f"an even number, at most {target.gemm_stationary_fmax}",
            remedy="pad `stationary` by a column",
            error=OperandShapeError,
        )

    @rule("there is a scale for each column of a tile")
    def scale_columns_fit(self, target: Target) -> Fault | None:
        for data, name in self.scaled():
            tile, scale = self.__dict__[data], self.__dict__[name]
            if scale.free < tile.free:
                return Fault(
                    operand=f"{name}: {scale.describe()}",
                    found=f"{scale.free} scales per partition",
                    allowed=f"at least {tile.free}, as in {data}: {tile.describe()}",
                    remedy=f"allocate `{name}` with {tile.free} columns",
                    error=OperandShapeError,
                    text=f"`{name}` has {scale.free} scales per partition, `{data}` has {tile.free} columns",
                )
        return None

    @rule("a tile of the array takes rows only: all columns, from column 0 on")
    def tiles_are_rows(self, target: Target) -> Fault | None:
        size: tuple[int, ...] = self.tile_size or ()
        position: tuple[int, ...] = self.tile_position or ()
        columns = target.gemm_stationary_fmax
        if not size or (size[-1] == columns and position[-1] == 0):
            return None
        return Fault(
            operand="tile_size, tile_position",
            found=f"tile_size={size}, tile_position={position}",
            allowed=f"tile_size=(rows, {columns}) and tile_position=(first row, 0)",
            remedy="place the product on rows of the array, or leave both out",
            error=LimitError,
        )

    def one_index(self, data: str, scales: str) -> bool:
        """Whether values and their scales go by the same offsets, or neither by any."""
        accesses = (self.__dict__[data], self.__dict__[scales])
        first, second = (access.dynamic.index if is_indirect(access) else None for access in accesses)
        return bool(first == second)

    def current_key(self) -> tuple[Any, ...]:
        """Legality also depends on which tiles the offsets stand in."""
        return (*super().current_key(), *(self.one_index(*pair) for pair in self.scaled()))

    @rule("values and their scales go by the same offsets (semantics rule 43)")
    def scales_follow_values(self, target: Target) -> Fault | None:
        for data, name in self.scaled():
            if not self.one_index(data, name):
                return Fault(
                    operand=f"{data} and {name}",
                    found="two different ways of addressing",
                    allowed="both made by .indirect() with one index, or neither",
                    remedy=f"call .indirect(index) on both {data} and {name}",
                )
        return None

    def semantics(self, a: Any) -> Steps:
        sides = []
        for data, name in self.scaled():
            packed = getattr(a, data)
            rows, columns = packed.shape
            matrix = a.scratch((rows * LANES, columns), np.float32)
            lanes = matrix.reshape(rows, LANES, columns)
            yield dequantize, (packed, getattr(a, name), self.__dict__[data].dtype, lanes)
            sides.append(matrix)
        yield from self.multiply(a, *sides)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (trainium3_arch.rst): a column takes as long as in bfloat16, with four times the contraction."""
        rows, columns = self.product_shape()
        return matmul_phases(target, self.stationary, rows, columns, moving=self.moving)
