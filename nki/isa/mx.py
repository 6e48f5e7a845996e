"""Microscaling (MX): packed elements, and where the scales of a tile lie (semantics rules 115 to 119).

Four lanes are packed in one element. A scale serves 8 partitions of 4 lanes. The scales of each quadrant of 32
partitions lie in the first four partitions of that quadrant, counted from where the scale tile begins, so that tiles
beginning 0, 4, 8 or 12 partitions into a quadrant share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from nki import dtypes
from nki.dtypes import DType
from nki.enums import nc_version
from nki.errors import OperandShapeError
from nki.ir.operands import Operand
from nki.ir.program import Access
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array, bits
from nki.isa.compute import ComputeInstruction
from nki.target import Target, get_target

_MACHINE: Final = get_target("trn3")
LANES: Final = _MACHINE.mx_pack
GROUP: Final = _MACHINE.mx_scale_group // LANES
"""Partitions that share a scale."""
QUADRANT: Final = _MACHINE.quadrant_partitions
SCALE_ROWS: Final = QUADRANT // GROUP
"""Partitions that the scales of a quadrant take."""
SCALE_STARTS: Final = tuple(range(0, 4 * SCALE_ROWS, SCALE_ROWS))
"""Where scales may begin in a quadrant (mxfp-matmul.rst)."""

SCALES: Final = frozenset({dtypes.float8_e8m0fnu, dtypes.uint8})
ELEMENTS: Final[dict[DType, np.dtype[Any]]] = {
    dtypes.float8_e4m3fn_x4: np.dtype(ml_dtypes.float8_e4m3fn),
    dtypes.float8_e5m2_x4: np.dtype(ml_dtypes.float8_e5m2),
    dtypes.float4_e2m1fn_x4: np.dtype(ml_dtypes.float4_e2m1fn),
}
"""What the packed types hold."""


@cache
def scale_rows(partitions: int) -> Array:
    """For each group of a tile, the row of its scale, counted from the first row of the scale tile."""
    groups = np.arange(partitions // GROUP)
    return groups // SCALE_ROWS * QUADRANT + groups % SCALE_ROWS


@cache
def _values(dtype: np.dtype[Any], codes: int) -> Array:
    """The float32 value of each code of an 8-bit or 4-bit type."""
    return np.arange(codes, dtype=np.uint8).view(dtype).astype(np.float32)


def dequantize(packed: Array, scale: Array, dtype: DType, out: Array) -> None:
    """out[k, lane, n] = value of a lane times its scale, in float32, from packed[k, n] and a tile of scales."""
    rows, columns = packed.shape
    element = ELEMENTS[dtype]
    if dtype.itemsize == LANES:
        codes = np.ascontiguousarray(bits(packed)).view(np.uint8).reshape(rows, columns, LANES)
        values = _values(element, 256)[codes]
    else:
        shifts = np.arange(0, 4 * LANES, 4, dtype=np.uint16)
        values = _values(element, 16)[bits(packed)[..., None] >> shifts & 15]
    used = bits(scale)[scale_rows(rows), :columns]
    factors = _values(dtypes.float8_e8m0fnu.numpy, 256)[used]
    np.multiply(values.transpose(0, 2, 1), np.repeat(factors, GROUP, axis=0)[:, None, :], out)


class MxInstruction(ComputeInstruction, abstract=True):
    """An instruction on packed tiles with their scales."""

    since = nc_version.gen4

    def scaled(self) -> tuple[tuple[str, str], ...]:
        """Names of the tiles and of their scales."""
        raise NotImplementedError

    def on_chip(self) -> Iterator[tuple[Operand, Access]]:
        """Scales have rules of their own about partitions."""
        scales = {scale for _, scale in self.scaled()}
        return ((o, a) for o, a in super().on_chip() if o.name not in scales)

    def scale_windows(self, data: str, scale: str) -> list[Access]:
        """The parts of a scale tile that hold scales."""
        tile: Access = self.__dict__[data]
        whole: Access = self.__dict__[scale]
        if whole.dynamic is not None:
            return [whole]
        free = whole.shape[1:]
        if len(free) == 1:
            free = (min(free[0], self.scale_columns(data)),)
        return [
            Access(
                whole.buffer,
                whole.dtype,
                whole.offset + quadrant * QUADRANT * whole.strides[0],
                (SCALE_ROWS, *free),
                whole.strides,
            )
            for quadrant in range(tile.partitions // QUADRANT)
        ]

    def scale_columns(self, data: str) -> int:
        """Scales per partition of a tile."""
        return int(self.__dict__[data].free)

    @rule("an MX tile has 32, 64, 96 or 128 partitions")
    def quadrants_are_whole(self, target: Target) -> Fault | None:
        for name, _ in self.scaled():
            access = self.__dict__[name]
            if access.partitions % QUADRANT:
                return Fault(
                    operand=f"{name}: {access.describe()}",
                    found=f"{access.partitions} partitions",
                    allowed=f"a multiple of {QUADRANT}, at most {target.pmax}",
                    remedy="pad the contraction dimension with zeros",
                    error=OperandShapeError,
                    text=f"`{name}` has {access.partitions} partitions, not whole quadrants of {QUADRANT}",
                )
        return None

    @rule("scales lie in the quadrant of the values they scale (semantics rule 116)")
    def scale_partitions_fit(self, target: Target) -> Fault | None:
        for data, name in self.scaled():
            tile, scale = self.__dict__[data], self.__dict__[name]
            needed = int(scale_rows(tile.partitions)[-1]) + 1
            if scale.partitions < needed:
                shape = (tile.partitions if needed > SCALE_ROWS else needed, self.scale_columns(data))
                return Fault(
                    operand=f"{name}: {scale.describe()}",
                    found=f"{scale.partitions} partitions",
                    allowed=f"at least {needed}: {SCALE_ROWS} rows in each of {tile.partitions // QUADRANT} quadrants",
                    remedy=f"allocate `{name}` with shape {shape}; row 4q + i of the scales lies in partition 32q + i",
                    error=OperandShapeError,
                    text=f"`{name}` has {scale.partitions} partitions, the scales of {tile.partitions} need {needed}",
                )
        return None

    @rule(
        "scales begin 0, 4, 8 or 12 partitions into a quadrant and take partitions in a row (semantics rule 116)"
    )
    def scale_start_is_legal(self, target: Target) -> Fault | None:
        for _, name in self.scaled():
            scale = self.__dict__[name]
            start = scale.start_partition % QUADRANT
            if start in SCALE_STARTS and scale.strides[0] == scale.row:
                continue
            return Fault(
                operand=f"{name}: {scale.describe()}",
                found=f"a start at partition {scale.start_partition}, a step of {scale.strides[0]} elements",
                allowed=f"{', '.join(map(str, SCALE_STARTS))} partitions into a quadrant, a step of {scale.row}",
                remedy="slice the scale tile as tile[4:], tile[8:] or tile[12:]",
            )
        return None

    @rule("scales begin in the quadrant in which their tile begins", severity="warning")
    def scale_quadrant_is_legal(self, target: Target) -> Fault | None:
        for data, name in self.scaled():
            tile, scale = self.__dict__[data], self.__dict__[name]
            if tile.start_partition // QUADRANT == scale.start_partition // QUADRANT:
                continue
            return Fault(
                operand=f"{name}: {scale.describe()}",
                found=f"`{data}` from partition {tile.start_partition}, `{name}` from {scale.start_partition} on",
                allowed="the same quadrant for both",
                remedy=f"take `{name}` from partition {tile.start_partition // QUADRANT * QUADRANT} of a larger tile",
            )
        return None
