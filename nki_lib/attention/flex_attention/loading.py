"""Queries and keys on their way from HBM: both are needed with the head dimension on the partitions.

Keys and values stay in SBUF from their first use while they all fit; else the chunks used last are kept and tiles of
queries load the others again.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

RESIDENT_SHARE = 2  # at most 1/RESIDENT_SHARE of SBUF holds keys and values; the rest is for tiles in flight
HELD_CHUNKS = 4  # kept if the keys do not fit


def fetch(dst: Any, src: Any) -> None:
    """A load, started by the hardware's descriptor generator where there is one (trn2 and later)."""
    hardware = nisa.get_nc_version() > nisa.nc_version.gen2
    nisa.dma_copy(dst=dst, src=src, dge_mode=nisa.dge_mode.hwdge if hardware else nisa.dge_mode.unknown)


def load_by_partition(rows: Any) -> Any:
    """rows [c, D] in HBM as [128, c/128, D] in SBUF: row r in partition r % 128. The last block may be incomplete."""
    count, depth = rows.shape
    side = nl.tile_size.pmax
    tile = nl.ndarray((min(side, count), -(-count // side), depth), dtype=rows.dtype, buffer=nl.sbuf)
    for block in range(tile.shape[1]):
        part = rows[block * side : min((block + 1) * side, count), :]
        fetch(dst=tile[: part.shape[0], block, :], src=part)
    return tile


def load_transposed(rows: Any) -> Any:
    """rows [c, D] in HBM as [D, c] in SBUF, through one PSUM bank."""
    count, depth = rows.shape
    tile, side = load_by_partition(rows), nl.tile_size.pmax
    in_psum = nl.ndarray((depth, count), dtype=rows.dtype, buffer=nl.psum)
    transposed = nl.ndarray((depth, count), dtype=rows.dtype, buffer=nl.sbuf)
    for block in range(tile.shape[1]):
        first, stop = block * side, min((block + 1) * side, count)
        nisa.nc_transpose(dst=in_psum[:, first:stop], data=tile[: stop - first, block, :])
    nisa.tensor_copy(dst=transposed, src=in_psum)
    return transposed


class Chunks:
    """Keys and values in SBUF, a chunk of c <= 512 keys at a time, loaded when first asked for.

    Dimensions: k, v [Sk, D] in HBM; a chunk is (k^T [D, c], v [128, c/128, D]).
    """

    def __init__(self, k: Any, v: Any) -> None:
        self.k = k
        self.v = v
        self.held = {}
        count, depth = k.shape
        per_partition = (count + count * depth // nl.tile_size.pmax) * k.dtype.itemsize
        self.fit = per_partition * RESIDENT_SHARE <= nl.tile_size.sbuf_fmax_bytes

    def chunk(self, first: int) -> Any:
        """The chunk that begins at key `first`."""
        if first not in self.held:
            if not self.fit and len(self.held) == HELD_CHUNKS:
                self.held.pop(next(iter(self.held)))
            stop = min(first + nl.tile_size.psum_bank_fmax, self.k.shape[0])
            self.held[first] = (
                load_transposed(self.k[first:stop, :]),
                load_by_partition(self.v[first:stop, :]),
            )
        return self.held[first]
