"""Writing new keys or values into a cache, where the places are data: a scatter of rows."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def write_rows(cache: Any, rows: Any, places: Any) -> None:
    """cache[places[n]] = rows[n], seeing the cache as a list of rows; a place after its end is skipped.

    Dimensions: cache [..., D] of R rows, written in place; rows [N, D]; places [N, 1] int32.

    Pseudocode:
        for 128 rows at a time: load the rows and their places; store each row at its place
    """
    count, depth = rows.shape
    flat = cache.reshape((cache.size // depth, depth))
    for start in range(0, count, nl.tile_size.pmax):
        stop = min(start + nl.tile_size.pmax, count)
        tile = nl.ndarray((stop - start, depth), dtype=rows.dtype, buffer=nl.sbuf)
        index = nl.ndarray((stop - start, 1), dtype=places.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=rows[start:stop, :])
        nisa.dma_copy(dst=index, src=places[start:stop, :])
        target = flat.ap(pattern=[[depth, stop - start], [1, depth]], vector_offset=index)
        nisa.dma_copy(dst=target, src=tile, oob_mode=nisa.oob_mode.skip)
