"""Cross entropy of logits that are never stored: they are made in PSUM, and used up there.

Letters as in `cross_entropy/kernel.py`, and H the width of the model. Rows come in blocks of up to 512, whose T tiles
of m = 128 rows follow one another.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import column_like, load, spans
from nki_lib.linear.matmul.kernel import multiply_block, row_blocks
from nki_lib.linear.matmul.loading import Factor, Kept
from nki_lib.loss.cross_entropy.statistics import Statistics, bent, losses
from nki_lib.loss.cross_entropy.targets import new, split

WIDTH = 4096  # columns of a dot product made at a time


@nki.jit
def linear_cross_entropy(
    x: Any, target: Any, weight: Any, smoothing: float = 0.0, z: float = 0.0, cap: float | None = None
) -> Any:
    """The loss and the log sum exp of every row of the logits x weight^T, in float32.

    Dimensions: x [N, H]; weight [V, H]; target [N] int32, negative where a row is ignored: its loss is 0 -> [N, 2].
    N is at most 128, or a multiple of 128.

    Pseudocode:
        for each block of 512 rows:
            the targets' logits: gather their rows of weight, multiply with x, sum
            for each 512 classes: logits = x weight^T in PSUM; their maximum, the sum of exp(logit - maximum)
            lse and the losses from these, all rows of the block at once
    """
    count, classes = x.shape[0], weight.shape[0]
    left, right = Kept(Factor(x, False)), Factor(weight, False)
    out = nl.ndarray((count, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    chunks = spans(classes, nl.tile_size.psum_bank_fmax)
    for rows in row_blocks(count):
        first, last = rows
        m = min(last - first, nl.tile_size.pmax)
        tiles = (last - first) // m
        valid, place = split(load(target[first:last].reshape((tiles, m)).permute((1, 0))))
        picked = bent(products_with_named_rows(x[first:last, :], weight, place), cap)
        found = Statistics((m, tiles, len(chunks)), cap)
        for c in range(len(chunks)):
            for start, _, total in multiply_block(left, right, rows, chunks[c]):
                t, tile = (start - first) // m, bent(total, cap)
                if smoothing:
                    found.sum_weighted(tile, None, t, c)
                found.sum_exponentials(tile, t, c)
        both = losses(found, picked, valid, (None, None), classes, (smoothing, z))
        nisa.dma_copy(dst=out[first:last, :].reshape((tiles, m, 2)).permute((1, 0, 2)), src=both)
    return out


def products_with_named_rows(x: Any, weight: Any, place: Any) -> Any:
    """x[t m + p] . weight[place[p, t]]. Dimensions: x [T m, H], weight [V, H] in HBM, place [m, T] -> [m, T]."""
    m, tiles = place.shape
    width = x.shape[1]
    result = new((m, tiles))
    parts = spans(width, WIDTH)
    for t in range(tiles):
        sums = new((m, len(parts)))
        for i in range(len(parts)):
            low, high = parts[i]
            mine = load(x[t * m : (t + 1) * m, low:high])
            named = nl.ndarray(mine.shape, dtype=weight.dtype, buffer=nl.sbuf)
            pattern = [[width, m], [1, high - low]]
            source = weight.ap(pattern=pattern, offset=low, vector_offset=place[:, t : t + 1])
            nisa.dma_copy(dst=named, src=source)
            product = new(mine.shape)
            nisa.tensor_tensor(dst=product, data1=mine, data2=named, op=nl.multiply)
            nisa.tensor_reduce(dst=sums[:, i : i + 1], op=nl.add, data=product, axis=1)
        total = column_like(sums)
        nisa.tensor_reduce(dst=total, op=nl.add, data=sums, axis=1)
        nisa.tensor_copy(dst=result[:, t : t + 1], src=total)
    return result
