"""`nisa.nc_transpose`: exchange the partition and the free axis of a tile, on the Tensor or the Vector engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import errors
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps, engine_choice
from nki.ir.operands import ANY_DTYPE, ON_CHIP, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import bits
from nki.isa.compute import ComputeInstruction
from nki.isa.costs import elementwise_phases
from nki.isa.costs_tensor import matmul_phases, passes_of
from nki.isa.export import instruction
from nki.target import Target

_SET_BYTES, _LINE_BYTES = 1 << 9, 1 << 6  # of the host: rows this far apart share few cache sets (measured)
_WIDE = 4  # bytes of the types that the array takes in several passes


@instruction
class nc_transpose(ComputeInstruction):
    """dst[F, P] = data[P, F].T, bit by bit; all free dimensions of a side count as one.

    The Tensor engine (up to 128x128, SBUF to PSUM) multiplies by an identity; on trn1, unlike here, one NaN or infinity
    then spoils its whole row. The Vector engine transposes up to 32x32 in SBUF or PSUM. Unless `engine` says
    otherwise, a destination in PSUM means the Tensor engine, one in SBUF the Vector engine.
    Sources: nki.isa.nc_transpose; trainium2_arch.rst (transpose); semantics rules 66, 67.
    """

    layout = "declared"
    limits = {"P": "pmax", "F": "pmax"}

    dst = destination("* *", ON_CHIP, ANY_DTYPE, doc="the transpose, of the same dtype")
    data = source("P F", ON_CHIP, ANY_DTYPE, doc="the tile to transpose")
    engine = engine_choice(Engine.tensor, Engine.vector)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        rows, columns = self.data.partitions, self.data.free
        return {"dst": (columns, rows), "data": (rows, columns)}

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        if engine is Engine.tensor:
            if self.dst.memory is not MemoryRegion.psum:
                return "it writes PSUM only; allocate `dst` with buffer=nl.psum"
            if self.data.memory is not MemoryRegion.sbuf:
                return "it reads SBUF only; copy `data` there first with nisa.tensor_copy"
            return None
        side = target.vector_transpose_fmax
        if max(self.data.partitions, self.data.free) > side:
            return f"it transposes at most {side}x{side}, `data` is {self.data.partitions}x{self.data.free}"
        return None

    @rule("dst = data.T")
    def shapes_are_exchanged(self, target: Target) -> Fault | None:
        shape = (self.data.free, self.data.partitions)
        if (self.dst.partitions, self.dst.free) == shape:
            return None
        return Fault(
            f"dst: {self.dst.describe()}",
            found=f"dst has shape {list(self.dst.shape)}, data has shape {list(self.data.shape)}",
            allowed=f"{list(shape)} = [F, P]",
            remedy=f"allocate dst with shape {shape}",
            error=errors.OperandShapeError,
            text=f"dst[F, P] = data[P, F].T: `dst` must have shape {list(shape)}",
        )

    @rule("`dst` has the dtype of `data`")
    def one_dtype(self, target: Target) -> Fault | None:
        if self.dst.dtype == self.data.dtype:
            return None
        return Fault(
            f"dst: {self.dst.describe()}",
            found=f"{self.data.dtype} to {self.dst.dtype}",
            allowed=f"{self.data.dtype}, as `data`",
            remedy=f"allocate `dst` in {self.data.dtype} and cast while copying it out (nisa.tensor_copy)",
            error=errors.OperandDtypeError,
        )

    def semantics(self, a: Any) -> Steps:
        dst, data = bits(a.dst), bits(a.data)
        if data.strides[0] % _SET_BYTES == 0:  # its columns would fight for one set of the host's cache
            padded = a.scratch((data.shape[0], data.shape[1] + _LINE_BYTES // data.itemsize), data.dtype)
            straight, data = data, padded[:, : data.shape[1]]
            yield np.copyto, (data, straight)
        yield np.copyto, (dst, data.T)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        if self.engine is Engine.vector:
            return elementwise_phases(self, target, self.dst, (self.data,), modes=False)
        wide = self.data.dtype.itemsize == _WIDE
        passes = passes_of(target, wide, transpose=True)
        # The identity that streams through has as many columns as `data` has partitions.
        return matmul_phases(
            target,
            self.data,
            self.data.free,
            self.data.partitions,
            passes=passes,
            transpose=True,
            weights="data",
        )
