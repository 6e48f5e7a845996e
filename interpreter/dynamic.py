"""Windows whose place is known only while running: reading and writing them through registers and index tiles.

All legal places of a window are one array with an extra first axis, `places`; a run picks rows of it. The functions
here are calls of a plan: everything but the index is bound beforehand (`moving.py` does that). Index values are
unsigned 32-bit numbers, so that -1 is a huge index and not the last row (semantics rule 95).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki import errors
from nki.ir.program import Access
from nki.span import UNKNOWN, Span

_UNSIGNED = 0xFFFFFFFF


@dataclass(frozen=True)
class Place:
    """What is known beforehand about a dynamic operand, and what an error needs to say about it.

    mnemonic, operand: the instruction and its operand by name; span: where it was called.
    legal: number of legal index values.  skip: whether a place outside is dropped instead of being an error.
    apart: whether the windows at two index values never share an element.  once: whether no index may occur twice.
    group: partitions that share one list of offsets ("indirect").
    """

    mnemonic: str
    operand: str
    access: Access
    legal: int
    span: Span = UNKNOWN
    skip: bool = False
    apart: bool = False
    once: bool = False
    group: int = 1

    @property
    def name(self) -> str:
        """What the user calls the tensor."""
        return self.access.buffer.label or self.access.buffer.name

    def outside(self, index: int, partition: int | None) -> errors.DynamicBoundsError:
        """The error for one index value."""
        where = "" if partition is None else f" (partition {partition} of the index tensor)"
        remedy = "correct the index"
        if self.access.memory.is_hbm:
            remedy += ", or pass oob_mode=nisa.oob_mode.skip to a DMA to drop such transfers"
        valid = f"0..{self.legal - 1}" if self.legal else "none"
        return errors.DynamicBoundsError(
            f"{self.mnemonic}: index {index}{where} leaves `{self.name}`; valid are {valid}",
            operand=f"{self.operand}: {self.access.describe()}",
            found=f"index {index}{where}",
            allowed=valid,
            remedy=remedy,
            span=self.span,
        )

    def twice(self, row: int, partitions: list[int]) -> errors.RuleError:
        """The error for a row that an index tensor names more than once."""
        return errors.RuleError(
            f"{self.mnemonic}: row {row} of `{self.name}` appears {_times(len(partitions))} in the index "
            "tensor; only one of the sums would be kept",
            operand=f"{self.operand}: {self.access.describe()}",
            found=f"index {row} in partitions {', '.join(map(str, partitions))}",
            allowed="every row at most once",
            remedy="add up the rows that belong together first, or use several instructions",
            span=self.span,
        )


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def unsigned(index: np.ndarray) -> np.ndarray:
    """Index values as what the address hardware sees."""
    return np.asarray(index.astype(np.int64) & _UNSIGNED)


# one index for the whole window


def read_scalar(
    out: np.ndarray, places: np.ndarray, index: np.ndarray, place: Place, fetched: np.ndarray | None = None
) -> None:
    """out = the window at one index; `fetched` receives whether there is one."""
    value = int(index.flat[0]) & _UNSIGNED
    legal = value < place.legal
    if fetched is not None:
        fetched[...] = legal
    if legal:
        np.copyto(out, places[value])
    elif not place.skip:
        raise place.outside(value, None)


def write_scalar(
    places: np.ndarray, values: np.ndarray, index: np.ndarray, place: Place, where: np.ndarray | None = None
) -> None:
    """The window at one index = values, or those of them that `where` marks."""
    value = int(index.flat[0]) & _UNSIGNED
    if value < place.legal:
        np.copyto(places[value], values, where=True if where is None else where)
    elif not place.skip:
        raise place.outside(value, None)


# one index per row


def _rows(index: np.ndarray, count: int, place: Place) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` index values, column after column, as row numbers, and which of them are legal."""
    rows = unsigned(index.T.reshape(-1)[:count])
    legal = rows < place.legal
    if not place.skip and not legal.all():
        row = int(np.argmin(legal))
        raise place.outside(int(rows[row]), row % index.shape[0])
    return rows, legal


def read_vector(
    out: np.ndarray, places: np.ndarray, index: np.ndarray, place: Place, fetched: np.ndarray | None = None
) -> None:
    """out[p] = the row that the p-th index names; `fetched` receives which rows there are."""
    rows, legal = _rows(index, len(out), place)
    if fetched is not None:
        fetched.reshape(len(out), -1)[...] = legal[:, None]
    if not legal.all():
        out[legal] = places[rows[legal]]
    elif places.flags.c_contiguous and out.flags.c_contiguous:
        np.take(places, rows, 0, out, "clip")  # all are inside; another mode would go through a copy
    else:
        out[...] = places[rows]


def write_vector(
    places: np.ndarray, values: np.ndarray, index: np.ndarray, place: Place, where: np.ndarray | None = None
) -> None:
    """The row that the p-th index names = values[p], or what `where` marks of it; in order of p."""
    rows, legal = _rows(index, len(values), place)
    order = np.flatnonzero(legal)
    chosen = rows[order]
    distinct, counts = np.unique(chosen, return_counts=True)
    repeated = len(distinct) < len(chosen)
    if repeated and place.once:
        row = int(distinct[np.argmax(counts)])
        raise place.twice(row, [int(p) % index.shape[0] for p in order[chosen == row]])
    if where is None and place.apart and not repeated:
        places[chosen] = values if len(order) == len(values) else values[order]
        return
    for p, row in zip(order.tolist(), chosen.tolist()):
        kept: Any = True if where is None else where[p : p + 1]
        np.copyto(places[row : row + 1], values[p : p + 1], where=kept)


# one offset per element of the partition


def _offsets(index: np.ndarray, count: int, place: Place) -> np.ndarray:
    """offsets[group, i] = index[i % G, i // G] of the group's own partitions (semantics rule 42)."""
    partitions, columns = index.shape
    group = min(place.group, partitions)
    tiles = unsigned(index).reshape(partitions // group, group, columns)
    found = tiles.transpose(0, 2, 1).reshape(partitions // group, group * columns)[:, :count]
    wrong = np.argwhere(found >= place.legal)
    if len(wrong):
        first, column = map(int, wrong[0])
        raise place.outside(int(found[first, column]), first * group + column % group)
    return np.repeat(found, group, axis=0)


def read_indirect(
    out: np.ndarray, places: np.ndarray, index: np.ndarray, place: Place, fetched: np.ndarray | None = None
) -> None:
    """out[p, j] = the element of partition p at the j-th offset of p's group."""
    out[...] = np.take_along_axis(places, _offsets(index, out.shape[1], place), axis=1)


def write_indirect(
    places: np.ndarray, values: np.ndarray, index: np.ndarray, place: Place, where: np.ndarray | None = None
) -> None:
    """The element of partition p at the j-th offset of p's group = values[p, j], later ones last."""
    offsets = _offsets(index, values.shape[1], place)
    rows = np.arange(values.shape[0])
    for column in range(values.shape[1]):
        places[rows, offsets[:, column]] = values[:, column]


def store_marked(window: np.ndarray, values: np.ndarray, where: np.ndarray) -> None:
    """window = values where they are marked; everything else keeps its bits."""
    np.copyto(window, values, where=where)


READERS: dict[str, Any] = {"scalar": read_scalar, "vector": read_vector, "indirect": read_indirect}
WRITERS: dict[str, Any] = {"scalar": write_scalar, "vector": write_vector, "indirect": write_indirect}
