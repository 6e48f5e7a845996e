"""`nisa.quantize_mx`: bfloat16 or float16 to MXFP8, values and scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.dtypes import DType, cast_into
from nki.enums import engine as Engine
from nki.errors import OperandShapeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import SBUF, TEXT, Operand, attribute, destination, optional, source
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array, bits
from nki.isa.costs import streaming_phase
from nki.isa.export import instruction
from nki.isa.mx import ELEMENTS, GROUP, LANES, SCALES, MxInstruction, scale_rows
from nki.target import Target

LARGEST_EXPONENTS = {dtypes.float8_e4m3fn_x4: 8, dtypes.float8_e5m2_x4: 15}
BIAS = 127
LARGEST_CODE = 254
NAN_CODE = 255


@instruction
class quantize_mx(MxInstruction):
    """dst[P, F], dst_scale = src[P, 4F] in MXFP8: 8 partitions of 4 neighbours share a power of two. Vector engine.

    With `m` the largest magnitude of such a group and Emax = 8 (e4m3fn) or 15 (e5m2), the scale is
    2^(floor(log2 m) - (Emax - 1)), at least 2^-127; zeros alone have 2^-127. It is twice that of the OCP sample, so
    that the largest value rounds instead of being clamped. Elements are src / scale, rounded to nearest even; the scale
    is stored as the byte e of 2^(e - 127). `dst_scale` holds them in the first four partitions of each quadrant of 32
    and is written nowhere else; begin it 4, 8 or 12 partitions later to pack several. A group with NaN or infinity gets
    the scale NaN (255) and NaN elements; the page does not speak of them.
    Sources: nki.isa.quantize_mx; mxfp-matmul.rst; semantics rules 115-118.
    """

    engines = (Engine.vector,)
    layout = "declared"

    dst = destination("P F", SBUF, frozenset(LARGEST_EXPONENTS), doc="the elements, four to one")
    src = source("P *", SBUF, frozenset({dtypes.bfloat16, dtypes.float16}), doc="the values")
    dst_scale = destination(
        "* F", SBUF, SCALES, reads=True, doc="the scales, [P/8, F] spread over the quadrants"
    )
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def scaled(self) -> tuple[tuple[str, str], ...]:
        return (("dst", "dst_scale"),)

    def compute_of(self, operand: Operand) -> str:
        return "float32" if operand.name == "src" else "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {operand.name: (a.partitions, a.free) for operand, a in self.accesses()}

    def reads(self) -> list[Access]:
        return [self.src, *self.index_windows()]

    def writes(self) -> list[Access]:
        return [self.dst, *self.scale_windows("dst", "dst_scale")]

    @rule("`src` has four elements for each of `dst`")
    def four_to_one(self, target: Target) -> Fault | None:
        if self.src.free == LANES * self.dst.free:
            return None
        return Fault(
            operand=f"dst: {self.dst.describe()}",
            found=f"src has {self.src.free} elements per partition, dst has {self.dst.free}",
            allowed=f"a multiple of {LANES} in `src`, and a {LANES}th of that in `dst`",
            remedy=f"allocate dst as ({self.src.partitions}, {max(1, self.src.free // LANES)})",
            error=OperandShapeError,
        )

    def semantics(self, a: Any) -> Steps:
        yield quantize, (a.src, self.dst.dtype, a.dst, a.dst_scale)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (trainium3_arch.rst): four elements of `src` per partition and cycle."""
        return (streaming_phase(target, self.engine, self.dst.free, (self.src, self.dst, self.dst_scale)),)


def quantize(src: Array, dtype: DType, dst: Array, scale: Array) -> None:
    """Quantize float32 values [P, 4F]: packed elements to `dst`, codes of the scales to their rows of `scale`."""
    element = ELEMENTS[dtype]
    rows, columns = dst.shape
    groups = src.reshape(rows // GROUP, GROUP, columns, LANES)
    most = np.abs(groups).max(axis=(1, 3))
    codes = np.frexp(most)[1] - 1 - (LARGEST_EXPONENTS[dtype] - 1) + BIAS
    codes = np.where(most == 0, 0, np.clip(codes, 0, LARGEST_CODE))
    values = np.ldexp(groups, (BIAS - codes)[:, None, :, None])
    broken = ~np.isfinite(most)
    if broken.any():
        codes = np.where(broken, NAN_CODE, codes)
        values = np.where(broken[:, None, :, None], np.float32(np.nan), values)
    elements = np.empty((rows, columns, LANES), element)
    cast_into(elements, values.reshape(elements.shape))
    bits(dst)[...] = elements.view(np.uint32)[..., 0]
    bits(scale)[scale_rows(rows)] = codes
