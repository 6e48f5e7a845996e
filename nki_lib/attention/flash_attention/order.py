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

    diagonal: the last key that the first query sees; visible: how many keys the last query sees.
    """

    head: int
    start: int
    stop: int
    diagonal: int
    visible: int
    query: Any = None
    low: Any = None
    total: Any = None
    rows: Any = None


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


def steps_in_order(shape: tuple[int, ...], keys: int, causal: bool, chunks: Any) -> list[Step]:
    """All steps of a kernel for queries of this shape, [G, Sq, D]."""
    tiles = query_tiles(shape[0], shape[1], keys, causal)
    group_size = 1 if chunks.fit else GROUP_TILES
    block = CHUNKS_PER_BLOCK * chunks.length
    steps = []
    for first in range(0, len(tiles), group_size):
        group = tiles[first : first + group_size]
        for start in range(0, max(tile.visible for tile in group), block):
            for tile in group:
                stop = min(start + block, tile.visible)
                if start < stop:
                    steps.append(Step(tile, start, stop, start == 0, stop == tile.visible))
    return steps


def query_tiles(heads: int, queries: int, keys: int, causal: bool) -> list[Tile]:
    """The tiles of all heads, the queries with the fewest visible keys first."""
    tiles = []
    for head in range(heads):
        for start in range(0, queries, nl.tile_size.pmax):
            stop = min(start + nl.tile_size.pmax, queries)
            diagonal, visible = (start + keys - queries, stop + keys - queries) if causal else (keys, keys)
            tiles.append(Tile(head, start, stop, diagonal, visible))
    return tiles
