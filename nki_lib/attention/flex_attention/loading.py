"""Queries and keys on their way from HBM: both are needed with the head dimension on the partitions.

Keys and values stay in SBUF from their first use while they all fit; else the chunks used last are kept and tiles of
queries load the others again.
"""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nki_lib.common.tiles import load_by_partition, transpose_blocks

RESIDENT_SHARE = 2  # at most 1/RESIDENT_SHARE of SBUF holds keys and values; the rest is for tiles in flight
HELD_CHUNKS = 4  # kept if the keys do not fit


def load_transposed(rows: Any) -> Any:
    """rows [c, D] in HBM as [D, c] in SBUF, through one PSUM bank."""
    (transposed,) = transpose_blocks(load_by_partition(rows), rows.shape[0])
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
