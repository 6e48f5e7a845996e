"""Queries and keys on their way from HBM: both are needed with the head dimension on the partitions.

The keys are kept in SBUF from their first use to their last where they fit, so a causal kernel loads and transposes the
first of them while it already multiplies; else only the chunks in use are kept and each group of query tiles loads
them again.

A transposed tile is a list of parts [up to 128 of D, columns]: one part, or two for a head dimension above 128.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, load_by_partition, transpose_blocks

RESIDENT_SHARE = 2  # at most 1/RESIDENT_SHARE of SBUF holds keys and values; the rest is for tiles in flight
HELD_CHUNKS = 8  # kept if the keys do not fit: two blocks of four chunks


def repeat_row(row: Any) -> Any:
    """A row [1, f] of HBM on every partition: [128, f]."""
    tile = nl.ndarray((nl.tile_size.pmax, row.shape[1]), dtype=row.dtype, buffer=nl.sbuf)
    fetch(dst=tile, src=row.broadcast(0, nl.tile_size.pmax))
    return tile


def transpose_rows(tile: Any, negated: bool = False) -> list[Any]:
    """[m, D] in SBUF -> parts [d, m] of its transpose, with the other sign if `negated`."""
    m, depth = tile.shape
    parts = []
    for first in range(0, depth, nl.tile_size.pmax):
        d = min(nl.tile_size.pmax, depth - first)
        in_psum = nl.ndarray((d, m), dtype=tile.dtype, buffer=nl.psum)
        part = nl.ndarray((d, m), dtype=tile.dtype, buffer=nl.sbuf)
        nisa.nc_transpose(dst=in_psum, data=tile[:, first : first + d])
        if negated:
            nisa.tensor_scalar(dst=part, data=in_psum, op0=nl.multiply, operand0=-1.0)
        else:
            nisa.tensor_copy(dst=part, src=in_psum)
        parts.append(part)
    return parts


@dataclass(eq=False)
class Chunk:
    """Up to 512 keys in SBUF. Dimensions: keys, parts [d, c] of k^T; values [128, c/128, D]; ids [128, c] or None."""

    keys: list[Any]
    values: Any
    ids: Any

    def piece(self, start: int, stop: int) -> Chunk:
        """The keys `start` ... `stop - 1`; start is a multiple of 128."""
        values = self.values[:, start // nl.tile_size.pmax :, :]
        ids = None if self.ids is None else self.ids[:, start:stop]
        return Chunk([part[:, start:stop] for part in self.keys], values, ids)


class KeyChunks:
    """Keys and values in SBUF, a chunk of up to 512 keys at a time, loaded when first asked for.

    Dimensions: k, v [Sk, D] in HBM; ids [Sk], if keys have them.
    """

    def __init__(self, k: Any, v: Any, ids: Any = None) -> None:
        self.k = k
        self.v = v
        self.ids = ids
        self.length = nl.tile_size.psum_bank_fmax
        self.held = {}
        count, depth = k.shape
        parts = -(-depth // nl.tile_size.pmax)
        per_partition = (parts * count + count * depth // nl.tile_size.pmax) * k.dtype.itemsize
        if ids is not None:
            per_partition += count * ids.dtype.itemsize
        self.fit = per_partition * RESIDENT_SHARE <= nl.tile_size.sbuf_fmax_bytes

    def block(self, start: int, stop: int) -> list[Chunk]:
        """The keys `start` ... `stop - 1` by chunks, the first and the last one cut to what is wanted."""
        pieces = []
        while start < stop:
            first = start - start % self.length
            end = min(first + self.length, stop)
            pieces.append(self.chunk(first).piece(start - first, end - first))
            start = end
        return pieces

    def chunk(self, first: int) -> Chunk:
        """The chunk that begins at key `first`."""
        if first not in self.held:
            if not self.fit and len(self.held) == HELD_CHUNKS:
                self.held.pop(next(iter(self.held)))
            stop = min(first + self.length, self.k.shape[0])
            keys = load_by_partition(self.k[first:stop, :])
            ids = None if self.ids is None else repeat_row(self.ids[first:stop].expand_dim(0))
            values = load_by_partition(self.v[first:stop, :])
            self.held[first] = Chunk(transpose_blocks(keys, stop - first), values, ids)
        return self.held[first]
