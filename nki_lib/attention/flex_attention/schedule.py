"""Which tile of queries meets which keys, and what is done to the scores. Plain Python: nothing runs on the device."""

from __future__ import annotations

from dataclasses import dataclass

import nki.language as nl
from nki_lib.attention.flex_attention.recipe import EMPTY, FULL, PARTIAL


@dataclass
class Window:
    """Columns start ... stop - 1 of a step's scores that are masked alike.

    kind: EMPTY or PARTIAL; FULL ones are not listed. block: of a partial window, which partial block it belongs to;
    row, column: where the window begins in that block.
    """

    start: int
    stop: int
    kind: int
    block: int
    row: int
    column: int


@dataclass
class Step:
    """One tile of queries against the keys chunk + start ... chunk + stop - 1; start counts whole tiles of keys."""

    chunk: int
    start: int
    stop: int
    windows: list[Window]


@dataclass
class QueryTile:
    """Up to 128 queries of one head, within one row of blocks, and the keys they see."""

    head: int
    start: int
    stop: int
    steps: list[Step]


def query_tiles(
    queries: tuple[int, int], keys: int, kinds: bytes, block: tuple[int, int], merge: bool
) -> list[QueryTile]:
    """All tiles of `queries` = (heads, Sq).

    kinds: what each block is, of all heads, or of one that stands for all. block: queries and keys of a block.
    merge: adjacent partial blocks are one window, because a recipe masks them; else each has a mask of its own.
    """
    heads, length = queries
    rows, columns = -(-length // block[0]), -(-keys // block[1])
    shared = len(kinds) == rows * columns
    numbers, count = [], 0
    for kind in kinds:
        numbers.append(count)
        count += kind == PARTIAL
    tiles = []
    for head in range(heads):
        for row in range(rows):
            first = ((0 if shared else head) * rows + row) * columns
            mine = slice(first, first + columns)
            low, high = row * block[0], min((row + 1) * block[0], length)
            for start in range(low, high, nl.tile_size.pmax):
                spans = _spans(kinds[mine], numbers[mine], block[1], keys, start - low, merge)
                stop = min(start + nl.tile_size.pmax, high)
                tiles.append(QueryTile(head, start, stop, _steps(spans)))
    return tiles


def _spans(
    kinds: bytes, numbers: list[int], width: int, keys: int, row: int, merge: bool
) -> list[tuple[int, Window]]:
    """Windows over all keys by chunk, from their first key in it, cut at chunks and merged within them."""
    length = nl.tile_size.psum_bank_fmax
    spans: list[tuple[int, Window]] = []
    for column, kind in enumerate(kinds):
        position, end = column * width, min((column + 1) * width, keys)
        while position < end:
            chunk = position // length * length
            stop = min(end, chunk + length)
            last = spans[-1] if spans else None
            if last and last[0] == chunk and last[1].kind == kind and (merge or kind != PARTIAL):
                last[1].stop = stop - chunk
            else:
                window = Window(
                    position - chunk, stop - chunk, kind, numbers[column], row, position - column * width
                )
                spans.append((chunk, window))
            position = stop
    return spans


def _steps(spans: list[tuple[int, Window]]) -> list[Step]:
    """One step for each chunk of keys of which something is seen, from a whole tile of keys to the last one seen."""
    side = nl.tile_size.pmax
    by_chunk: dict[int, list[Window]] = {}
    for chunk, window in spans:
        by_chunk.setdefault(chunk, []).append(window)
    steps = []
    for chunk, windows in by_chunk.items():
        seen = [window for window in windows if window.kind != EMPTY]
        if not seen:
            continue
        start, stop = seen[0].start // side * side, seen[-1].stop
        masked = []
        for w in windows:
            low, high = max(w.start, start), min(w.stop, stop)
            if w.kind != FULL and low < high:
                masked.append(
                    Window(low - start, high - start, w.kind, w.block, w.row, w.column + low - w.start)
                )
        steps.append(Step(chunk, start, stop, masked))
    return steps
