"""Windows whose place is known only while running: reading and writing them through registers and index tiles.

All legal places of a window are one array with an extra first axis, `places`; a run picks rows of it. The functions here
are calls of a plan: everything but the index is bound beforehand. Index values are unsigned 32-bit numbers, so that -1 is
a huge index and not the last row (semantics rule 95).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki import errors
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access

_UNSIGNED = 0xFFFFFFFF
_SNAKE = 16


@dataclass(frozen=True)
class Place:
    """What an error needs to say about a dynamic operand, and whether a place outside is skipped instead."""

    instruction: Instruction
    operand: Operand
    access: Access
    legal: int
    skip: bool

    def error(self, index: int, row: int | None) -> errors.DynamicBoundsError:
        """The error for one index value."""
        where = "" if row is None else f" (partition {row})"
        name = self.access.buffer.label or self.access.buffer.name
        return errors.DynamicBoundsError(
            f"{self.instruction.mnemonic}: index {index}{where} leaves `{name}`: valid are 0..{self.legal - 1}",
            operand=f"{self.operand.name}: {self.access.describe()}",
            found=f"index {index}{where}",
            allowed=f"0..{self.legal - 1}",
            remedy="correct the index, or pass oob_mode=nisa.oob_mode.skip to a DMA to drop such transfers",
            span=self.instruction.span,
        )


def legal_places(access: Access) -> int:
    """Number of index values for which the window stays in its storage, at most the size of the indexed dimension."""
    dynamic = access.dynamic
    assert dynamic is not None
    first = 1 if dynamic.kind == "vector" else 0
    reach = sum((size - 1) * stride for size, stride in zip(access.shape[first:], access.strides[first:]))
    room = access.buffer.nbytes // access.dtype.itemsize - 1 - access.offset - reach
    if room < 0:
        return 0
    return min(dynamic.count, room // dynamic.stride + 1) if dynamic.stride > 0 else dynamic.count


def read_scalar(out: np.ndarray, places: np.ndarray, index: np.ndarray, place: Place) -> None:
    """out = the window at one index."""
    value = int(index.flat[0]) & _UNSIGNED
    if value < place.legal:
        np.copyto(out, places[value])
    elif not place.skip:
        raise place.error(value, None)


def write_scalar(places: np.ndarray, values: np.ndarray, index: np.ndarray, place: Place) -> None:
    """The window at one index = values."""
    value = int(index.flat[0]) & _UNSIGNED
    if value < place.legal:
        np.copyto(places[value], values)
    elif not place.skip:
        raise place.error(value, None)


def _rows(index: np.ndarray, place: Place) -> tuple[np.ndarray, np.ndarray]:
    """Index values as row numbers, and which of them are legal."""
    rows = index.reshape(-1).astype(np.int64) & _UNSIGNED
    legal = rows < place.legal
    if not place.skip and not legal.all():
        row = int(np.argmin(legal))
        raise place.error(int(rows[row]), row)
    return rows, legal


def read_vector(out: np.ndarray, places: np.ndarray, index: np.ndarray, place: Place) -> None:
    """out[p] = the row that index[p] names; rows outside stay as they are if such transfers are dropped."""
    rows, legal = _rows(index, place)
    if legal.all():
        out[...] = places[rows]
    else:
        out[legal] = places[rows[legal]]


def write_vector(places: np.ndarray, values: np.ndarray, index: np.ndarray, place: Place) -> None:
    """The row that index[p] names = values[p], in order of p."""
    rows, legal = _rows(index, place)
    places[rows[legal]] = values[legal]


def snake(index: np.ndarray, count: int, group: int = _SNAKE) -> np.ndarray:
    """The offsets of tensor indirection: offset i stands at index[i % group, i // group], for each group of partitions.

    Returns [groups, count].
    """
    partitions, columns = index.shape
    group = min(group, partitions)
    tiles = index.reshape(partitions // group, group, columns)
    return tiles.transpose(0, 2, 1).reshape(partitions // group, group * columns)[:, :count]


def read_indirect(out: np.ndarray, places: np.ndarray, index: np.ndarray, place: Place) -> None:
    """out[p, j] = the element of partition p at the j-th offset of p's group."""
    offsets = _offsets(index, out.shape, place)
    out[...] = np.take_along_axis(places, offsets, axis=1)


def write_indirect(places: np.ndarray, values: np.ndarray, index: np.ndarray, place: Place) -> None:
    """The element of partition p at the j-th offset of p's group = values[p, j], later ones last."""
    offsets = _offsets(index, values.shape, place)
    rows = np.arange(values.shape[0])
    for column in range(values.shape[1]):
        places[rows, offsets[:, column]] = values[:, column]


def _offsets(index: np.ndarray, shape: tuple[int, ...], place: Place) -> np.ndarray:
    found = snake(index.astype(np.int64) & _UNSIGNED, shape[1])
    wrong = np.argwhere(found >= place.legal)
    if len(wrong):
        group, column = wrong[0]
        raise place.error(int(found[group, column]), int(group) * _SNAKE)
    per_partition = shape[0] // found.shape[0]
    return np.repeat(found, per_partition, axis=0)


READERS: dict[str, Any] = {"scalar": read_scalar, "vector": read_vector, "indirect": read_indirect}
WRITERS: dict[str, Any] = {"scalar": write_scalar, "vector": write_vector, "indirect": write_indirect}
