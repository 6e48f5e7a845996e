"""Queries, sinks and spans of the cache on their way from HBM to SBUF; of a span, a few long runs for each partition.

A span is 128 * L keys, and partition p holds the keys p * L ... p * L + L - 1 of it: they lie next to each other in the
cache, so a descriptor moves thousands of bytes, not one row. In which order keys lie on the partitions does not matter
to attention as long as keys, values and mask agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch

PIECE_BYTES = 4096  # of a partition moved by one DMA: what saturates the DMA engines
SPAN_BYTES = 16384  # of a partition holding keys, and as many of one holding values
SPAN_KEYS = 64  # on a partition, at most


@dataclass(frozen=True)
class Span:
    """The keys from `start` on, `per` of them on each partition."""

    start: int
    per: int


def keys_per_partition(keys: int, depth: int, itemsize: int) -> int:
    """L, a power of two: how many keys of a span lie on each partition, for a program that reads `keys` keys."""
    per, most = 1, min(SPAN_KEYS, SPAN_BYTES // (depth * itemsize), keys // nl.tile_size.pmax)
    while 2 * per <= most:
        per *= 2
    return per


def spans_of(keys: int, per: int) -> list[Span]:
    """All spans of `keys` keys."""
    return [Span(start, per) for start in range(0, keys, per * nl.tile_size.pmax)]


def load_span(cache: Any, head: int, span: Span, places: Any) -> Any:
    """The span of one key head as [128, L, D].

    Dimensions: cache [Hkv, S, D], or in blocks [num_blocks, Hkv, block_size, D] if `places` says where.
    """
    side, depth = nl.tile_size.pmax, cache.shape[-1]
    tile = nl.ndarray((side, span.per, depth), dtype=cache.dtype, buffer=nl.sbuf)
    if places is not None:
        gather_span(tile, cache, head, places)
        return tile
    keys = cache[head, span.start : span.start + side * span.per, :].reshape((side, span.per, depth))
    step = max(1, PIECE_BYTES // (depth * cache.dtype.itemsize))
    for first in range(0, span.per, step):
        stop = min(first + step, span.per)
        fetch(dst=tile[:, first:stop, :], src=keys[:, first:stop, :])
    return tile


def gather_span(tile: Any, cache: Any, head: int, places: Any) -> None:
    """Fill [128, L, D] from blocks, a run of c keys for each partition at a time.

    Dimensions: places [128, L/c] in SBUF: where the runs of the span are, in runs, for key head 0.
    """
    blocks, heads, size, depth = cache.shape
    runs = places.shape[1]
    width = tile.shape[1] // runs
    flat = cache.reshape((blocks * heads * size // width, width * depth))
    for run in range(runs):
        nisa.dma_copy(
            dst=tile[:, run * width : (run + 1) * width, :],
            src=flat.ap(
                pattern=[[width * depth, nl.tile_size.pmax], [1, width * depth]],
                offset=head * size * depth,
                vector_offset=places[:, run : run + 1],
            ),
        )


def load_places(places: Any, span: Span) -> Any:
    """Where the runs of keys of a span are, as [128, L/c]. Dimensions: places [spans, 128, L/c] int32 in HBM."""
    tile = nl.ndarray(places.shape[1:], dtype=places.dtype, buffer=nl.sbuf)
    fetch(dst=tile, src=places[span.start // (span.per * nl.tile_size.pmax), :, :])
    return tile


def load_queries(q: Any) -> Any:
    """q^T in SBUF. Dimensions: q [Hkv, m, D] in HBM -> [D, Hkv, m]."""
    heads, m, depth = q.shape
    side = nl.tile_size.pmax
    flat = q.reshape((heads * m, depth))
    queries = nl.ndarray((depth, heads * m), dtype=q.dtype, buffer=nl.sbuf)
    for start in range(0, heads * m, side):
        stop = min(start + side, heads * m)
        tile = nl.ndarray((stop - start, depth), dtype=q.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=flat[start:stop, :])
        in_psum = nl.ndarray((depth, stop - start), dtype=q.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=in_psum, data=tile)
        nisa.tensor_copy(dst=queries[:, start:stop], src=in_psum)
    return queries.reshape((depth, heads, m))


def load_sinks(sinks: Any) -> Any:
    """The sinks of one key head in SBUF. Dimensions: [m, 1] in HBM -> [m, 1]."""
    tile = nl.ndarray(sinks.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=sinks)
    return tile


def transpose_keys(keys: Any) -> list[Any]:
    """[128, n, D] as n tiles [D, 128] in SBUF, through PSUM banks, which two engines empty in turn."""
    side, count, depth = keys.shape
    width = nl.tile_size.psum_bank_fmax_bytes // (side * keys.dtype.itemsize)
    tiles = []
    for first in range(0, count, width):
        number = min(width, count - first)
        in_psum = nl.ndarray((depth, number, side), dtype=keys.dtype, buffer=nl.psum)
        in_sbuf = nl.ndarray((depth, number, side), dtype=keys.dtype, buffer=nl.sbuf)
        for i in range(number):
            nisa.nc_transpose(dst=in_psum[:, i, :], data=keys[:, first + i, :])
            tiles.append(in_sbuf[:, i, :])
        if first // width % 2:
            nisa.activation(dst=in_sbuf, op=nl.copy, data=in_psum)
        else:
            nisa.tensor_copy(dst=in_sbuf, src=in_psum)
    return tiles
