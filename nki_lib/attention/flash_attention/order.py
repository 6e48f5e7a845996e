"""In which order query tiles meet key blocks. Plain Python: nothing here runs on the device.

If the keys stay in SBUF, a tile goes through all its blocks before the next one begins. If not, a group of tiles goes
through one block before the next one is loaded, so that every load serves the whole group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.language as nl

CHUNKS_PER_BLOCK = 2  # PSUM banks of a score tile; two tiles are in flight, four banks are left for the rest
GROUP_TILES = 16


@dataclass(eq=False)
class Tile:
    """Up to 128 queries of one head, and what the kernel knows of them so far.

    diagonal: the last key that the first query sees; visible: one more than the last key that the last query sees;
    edge: the first key inside the first query's window, which may lie before key 0.
    """

    index: int
    head: int
    start: int
    stop: int
    diagonal: int
    visible: int
    edge: int
    query: Any = None
    ids: Any = None
    low: Any = None
    total: Any = None
    rows: Any = None

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Which keys of `start` ... `stop - 1` some query of the tile sees; it begins at a multiple of 128."""
        side = nl.tile_size.pmax
        return max(start, self.edge // side * side), min(stop, self.visible)


@dataclass(eq=False)
class Step:
    """One tile against the keys start ... stop - 1, and what each stage leaves for the next."""

    tile: Tile
    start: int
    stop: int
    is_first: bool
    is_last: bool
    chunks: Any = None
    weights: Any = None
    total: Any = None
    factor: Any = None
    transposed: Any = None


def steps_in_order(tiles: list[Tile], chunks: Any) -> list[Step]:
    """All steps of a kernel for these tiles of queries."""
    group_size = 1 if chunks.fit else GROUP_TILES
    steps = []
    for first in range(0, len(tiles), group_size):
        of_group = []
        for tile in tiles[first : first + group_size]:
            of_group += steps_of(tile, chunks.length)
        steps += sorted(of_group, key=lambda step: step.start)
    return steps


def steps_of(tile: Tile, length: int) -> list[Step]:
    """The blocks of one tile: each begins with a chunk of `length` keys, or lies inside one."""
    first, _ = start, _ = tile.span(0, tile.visible)
    steps = []
    while start < tile.visible:
        room = length * CHUNKS_PER_BLOCK if start % length == 0 else length - start % length
        stop = min(start + room, tile.visible)
        steps.append(Step(tile, start, stop, start == first, stop == tile.visible))
        start = stop
    return steps


def query_tiles(
    shape: tuple[int, ...], keys: int, causal: bool, window: int | None, first: int | None = None
) -> list[Tile]:
    """The tiles of all heads of queries [G, Sq, D], those with the fewest visible keys first.

    first: the place of the first query among the keys; by default the last query stands at the last key.
    """
    heads, queries = shape[:2]
    shift = keys - queries if first is None else first
    tiles = []
    for head in range(heads):
        for start in range(0, queries, nl.tile_size.pmax):
            stop = min(start + nl.tile_size.pmax, queries)
            diagonal, visible = (start + shift, min(stop + shift, keys)) if causal else (keys, keys)
            edge = 0 if window is None else start + shift - window + 1
            tiles.append(Tile(len(tiles), head, start, stop, diagonal, visible, edge))
    return tiles
