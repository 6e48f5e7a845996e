"""The k largest or smallest elements of every row, and where they stand.

Letters:
  R  rows    W  their width    k  elements chosen, n of them up to whole eights    S  segments of a row, c wide each
  m  partitions of a block    g  lines in each of them
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.lines import Lines
from nki_lib.reduction.topk.narrowing import choose_by_groups, cycles
from nki_lib.reduction.topk.selection import gathered, order_keys, whole_eights

SEGMENT = 4096  # the widest lines: element, key and what makes it fit into SBUF, for two blocks
LINES = 4  # of a block in one partition: GpSimd looks up elements of one block while the next one is searched
KEY_PASSES = 4  # over the elements, for keys that order like them
LEVEL_CYCLES = 4096  # what another level costs beside its passes: its candidates go to HBM and back


@nki.jit
def topk(x: Any, k: int, largest: bool) -> Any:
    """The k largest (else smallest) elements of every row in order, the first of equal ones first; NaN is greatest.

    Dimensions: x [R, W], contiguous, W = `padded_width(W)` -> values [R, k] in the dtype of x, indices [R, k] int32.

    Pseudocode:
        cut the rows into segments, as many as make the time short: lines for all partitions
        for each block of lines:
            load it; keys that order like the elements
            of wide ones keep the groups of neighbours with the largest maxima, see `narrowing.py`
            for each eight of k: find the eight largest keys, where they stand, and take them away
            gather the elements; store them, the keys and the places as candidates
        the candidates of a row are one line: again, until there is one segment
    """
    rows, width = x.shape
    values = nl.ndarray((rows, k), dtype=x.dtype, buffer=nl.shared_hbm)
    indices = nl.ndarray((rows, k), dtype=nl.int32, buffer=nl.shared_hbm)
    segments = segments_of(rows, width, k)
    candidates = Candidates(rows, segments, k, x.dtype) if segments > 1 else None
    source = Lines(x.reshape((rows * segments, width // segments)))
    for block, tile in source.loaded(source.blocks(most=LINES)):
        keys, bases = order_keys(tile, largest), segment_starts(block, segments, source.width)
        found = [
            chosen(keys[:, i, :], k, segments > 1, tile[:, i, :], None, bases, i) for i in range(block[2])
        ]
        for i, each in enumerate(found):
            store(each, block, i, values, indices, candidates)
    while candidates is not None:
        segments = segments_of(rows, candidates.width, k)
        lines = candidates.cut(segments)
        candidates = Candidates(rows, segments, k, x.dtype) if segments > 1 else None
        for block in lines[0].blocks():
            keys, tile, places = (part.load(block) for part in lines)
            for i in range(block[2]):
                each = chosen(keys[:, i, :], k, segments > 1, tile[:, i, :], places[:, i, :], None, i)
                store(each, block, i, values, indices, candidates)
    return values, indices


class Candidates:
    """What the segments of all rows have found: keys, elements and places [R * S, n] in HBM."""

    def __init__(self, rows: int, segments: int, k: int, dtype: Any) -> None:
        self.rows, self.width = rows, segments * whole_eights(k)
        shape = (rows * segments, whole_eights(k))
        self.parts = [nl.ndarray(shape, dtype=d, buffer=nl.hbm) for d in (nl.float32, dtype, nl.int32)]

    def cut(self, segments: int) -> list[Any]:
        """The three as lines again, the candidates of a row side by side, cut into so many segments."""
        shape = (self.rows * segments, self.width // segments)
        return [Lines(part.reshape(shape)) for part in self.parts]


def chosen(
    keys: Any, k: int, again: bool, data: Any, origin: Any, bases: Any, i: int
) -> tuple[Any, Any, Any]:
    """Keys, elements and places of the k largest keys of line i, of whole eights if they are chosen from `again`.

    Dimensions: keys, data [m, w]; origin [m, w] int32, the places of data, or None: they are those in the line, plus
    bases [m, g] if not None -> three of [m, k or n].
    """
    count = whole_eights(k) if again else k
    best, places = choose_by_groups(keys, count)
    elements = gathered(data, places[:, :count])
    if origin is not None:
        return best, elements, gathered(origin, places[:, :count])
    indices = nl.ndarray((best.shape[0], count), dtype=nl.int32, buffer=nl.sbuf)
    if bases is None:
        nisa.tensor_copy(dst=indices, src=places[:, :count])
    else:
        nisa.tensor_scalar(dst=indices, data=places[:, :count], op0=nl.add, operand0=bases[:, i : i + 1])
    return best, elements, indices


def store(found: Any, block: Any, i: int, values: Any, indices: Any, candidates: Any) -> None:
    """Place i of the lines of a block: to the results, or to the candidates if there are some."""
    start, m, g = block
    targets = (None, values, indices) if candidates is None else candidates.parts
    for target, tile in zip(targets, found):
        if target is not None:
            lines = target[start : start + m * g].reshape_dim(0, (m, g))
            nisa.dma_copy(dst=lines[:, i, :], src=tile)


def segment_starts(block: Any, segments: int, width: int) -> Any:
    """Where the lines of a block begin in their rows; None if they are whole rows. -> [m, g] float32."""
    start, m, g = block
    if segments == 1:
        return None
    lines = nl.ndarray((m, g), dtype=nl.int32, buffer=nl.sbuf)
    starts = nl.ndarray((m, g), dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=lines, pattern=[[1, g]], offset=start, channel_multiplier=g)
    nisa.tensor_scalar(dst=lines, data=lines, op0=nl.bitwise_and, operand0=segments - 1)
    nisa.tensor_scalar(dst=starts, data=lines, op0=nl.multiply, operand0=float(width))
    return starts


def segments_of(rows: int, width: int, k: int) -> int:
    """The power of two of equal segments that takes the least time, counted in cycles of the Vector engine.

    So many candidates as the segments leave, n each, are one line of the next level.
    """
    side, n = nl.tile_size.pmax, whole_eights(k)
    best, least, segments = 1, None, 1
    while width % segments == 0 and (segments == 1 or width // segments > n):
        line = width // segments
        time = -(-rows * segments // side) * (KEY_PASSES * line + cycles(line, k))
        if segments > 1:
            time += LEVEL_CYCLES + -(-rows // side) * cycles(segments * n, k)
        if line <= SEGMENT and (least is None or time < least):
            best, least = segments, time
        segments *= 2
    return best


def padded_width(width: int) -> int:
    """What rows must be filled up to: they can then be cut into segments that are short enough."""
    segments = 1
    while width > SEGMENT * segments:
        segments *= 2
    return -(-width // segments) * segments
