"""Queries and keys on their way from HBM: both are needed with the head dimension on the partitions.

The keys are kept in SBUF from their first use to their last where they fit, so a causal kernel loads and transposes the
first of them while it already multiplies; else only the chunks in use are kept and each group of query tiles loads
them again.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

RESIDENT_SHARE = 2  # at most 1/RESIDENT_SHARE of SBUF holds keys and values; the rest is for tiles in flight
HELD_CHUNKS = 8  # kept if the keys do not fit: two blocks of four chunks


def fetch(dst: Any, src: Any) -> None:
    """A load, started by the hardware's descriptor generator where there is one (trn2 and later).

    It keeps no engine busy, and it has a queue of its own: a store that waits for its values, started the usual way,
    never holds up the next load.
    """
    hardware = nisa.get_nc_version() > nisa.nc_version.gen2
    nisa.dma_copy(dst=dst, src=src, dge_mode=nisa.dge_mode.hwdge if hardware else nisa.dge_mode.unknown)


def load_queries(rows: Any, negated: bool) -> Any:
    """q^T in SBUF, with the sign of the scale in it. Dimensions: rows [m, D] in HBM -> [D, m]."""
    m, depth = rows.shape
    tile = nl.ndarray((m, depth), dtype=rows.dtype, buffer=nl.sbuf)
    fetch(dst=tile, src=rows)
    transposed = nl.ndarray((depth, m), dtype=rows.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=transposed, data=tile)
    query = nl.ndarray((depth, m), dtype=rows.dtype, buffer=nl.sbuf)
    if negated:
        nisa.tensor_scalar(dst=query, data=transposed, op0=nl.multiply, operand0=-1.0)
    else:
        nisa.tensor_copy(dst=query, src=transposed)
    return query


class KeyChunks:
    """Keys and values in SBUF, a chunk of up to 512 keys at a time, loaded when first asked for.

    Dimensions: k, v [Sk, D] in HBM; a chunk of c keys is (k^T [D, c], v [128, c/128, D]).
    """

    def __init__(self, k: Any, v: Any) -> None:
        self.k = k
        self.v = v
        self.length = nl.tile_size.psum_bank_fmax
        self.held = {}
        count, depth = k.shape
        per_partition = (count + count * depth // nl.tile_size.pmax) * k.dtype.itemsize
        self.fit = per_partition * RESIDENT_SHARE <= nl.tile_size.sbuf_fmax_bytes

    def block(self, start: int, stop: int) -> list[Any]:
        """The chunks of the keys `start` ... `stop - 1`, the last one cut off to what is wanted."""
        chunks = []
        for first in range(start, stop, self.length):
            width = min(self.length, stop - first)
            keys, values = self.chunk(first)
            chunks.append((keys[:, :width], values))
        return chunks

    def chunk(self, first: int) -> Any:
        """The chunk that begins at key `first`."""
        if first not in self.held:
            if not self.fit and len(self.held) == HELD_CHUNKS:
                self.held.pop(next(iter(self.held)))
            stop = min(first + self.length, self.k.shape[0])
            keys = load_by_partition(self.k[first:stop, :])
            self.held[first] = (transpose_keys(keys, stop - first), load_by_partition(self.v[first:stop, :]))
        return self.held[first]


def load_by_partition(rows: Any) -> Any:
    """rows[c, D] in HBM as [128, c/128, D]: row r in partition r % 128. The last block may be incomplete."""
    count, depth = rows.shape
    side = nl.tile_size.pmax
    full, rest = divmod(count, side)
    tile = nl.ndarray((min(side, count), full + (rest > 0), depth), dtype=rows.dtype, buffer=nl.sbuf)
    if full:
        blocks = rows[: full * side, :].reshape((full, side, depth)).permute((1, 0, 2))
        fetch(dst=tile[:, :full, :], src=blocks)
    if rest:
        fetch(dst=tile[:rest, full, :], src=rows[full * side :, :])
    return tile


def transpose_keys(tile: Any, count: int) -> Any:
    """[128, c/128, D] -> [D, c], through one PSUM bank."""
    blocks, depth = tile.shape[1:]
    in_psum = nl.ndarray((depth, count), dtype=tile.dtype, buffer=nl.psum)
    keys = nl.ndarray((depth, count), dtype=tile.dtype, buffer=nl.sbuf)
    for block in range(blocks):
        first, stop = block * nl.tile_size.pmax, min((block + 1) * nl.tile_size.pmax, count)
        nisa.nc_transpose(dst=in_psum[:, first:stop], data=tile[: stop - first, block, :])
    nisa.tensor_copy(dst=keys, src=in_psum)
    return keys
