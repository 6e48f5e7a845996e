"""Attention with recipes for the query heads that share one key head: scores are changed and masked while in SBUF.

Letters used in every docstring here:
  G  query heads of one key head     m  queries of a tile, up to 128
  Sq queries, Sk keys                n  keys of a step, up to 512: one PSUM bank of scores
  D  head dimension, up to 128

Read `flex_attention`, then `attend`; `schedule.py` says which tile meets which keys, `recipe.py` what a recipe is.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.flex_attention.loading import Chunks, load_transposed
from nki_lib.attention.flex_attention.recipe import EMPTY
from nki_lib.attention.flex_attention.schedule import QueryTile, Step, Window, query_tiles
from nki_lib.common.tiles import column_like

MINUS_INFINITY = float("-inf")
LARGEST = 3.4028234663852886e38
"""The largest float32: the row maximum of scores that are all minus infinity is taken to be -LARGEST."""


@nki.jit
def flex_attention(
    q: Any,
    k: Any,
    v: Any,
    scale: float,
    score: Any,
    mask: Any,
    data: list[Any],
    masks: list[Any],
    kinds: bytes,
    block: tuple[int, int],
) -> Any:
    """softmax(mask(score(scale * q k^T))) v with float32 statistics; a query that sees no key gets zeros.

    Dimensions: q [G, Sq, D], k [Sk, D], v [Sk, D] -> [G, Sq, D].
    score, mask: recipes with holes for their tensors, or None. data: those tensors, of `score` first.
    masks: empty, or one tensor [P, BQ, BK] uint8, 0 where a key is not seen, of the P partial blocks in the order of
    `kinds`; it then replaces `mask`.
    kinds: EMPTY, PARTIAL or FULL for each block [G or 1, Sq/BQ, Sk/BK], a byte each. block: (BQ, BK).

    Pseudocode:
        for each tile of queries:
            for each chunk of keys of which it sees something:
                scores = score(scale * query^T k^T)
                mask the columns of partial blocks; minus infinity in empty ones
                weights = exp(scores - running maximum); rows = rows * factor + weights v
            out = rows / sum of the weights
    """
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    tensors = iter(data)
    score = None if score is None else score.with_tensors(tensors)
    mask = None if mask is None else mask.with_tensors(tensors)
    chunks = Chunks(k, v)
    for tile in query_tiles(q.shape[:2], k.shape[0], kinds, block, not masks):
        attend(tile, q, chunks, scale, (score, mask, masks), out)
    return out


def attend(tile: QueryTile, q: Any, chunks: Chunks, scale: float, recipes: Any, out: Any) -> None:
    """One tile of queries against all keys it sees: running maximum, sum of weights, and sum of rows of v."""
    result = out[tile.head, tile.start : tile.stop, :]
    if not tile.steps:
        zeros = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.sbuf)
        nisa.memset(dst=zeros, value=0.0)
        nisa.dma_copy(dst=result, src=zeros)
        return
    query = load_transposed(q[tile.head, tile.start : tile.stop, :])
    low, total, rows = None, None, None
    for step in tile.steps:
        keys, values = chunks.chunk(step.chunk)
        scores = scaled_scores(query, keys[:, step.start : step.stop], scale)
        change(scores, tile, step, recipes)
        before = low
        low = lowered(scores, before)
        weights, added = weigh(scores, low, q.dtype)
        new = multiply_values(weights, values, step.start // nl.tile_size.pmax)
        if before is None:
            total, rows = added, nl.ndarray(new.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=rows, src=new)
        else:
            factor = column_like(scores)
            nisa.activation(dst=factor, op=nl.exp, data=before, scale=-1.0, bias=low)
            total, rows = rescale_and_add(total, factor, added), rescale_and_add(rows, factor, new)
    store(result, rows, total)


def scaled_scores(query: Any, keys: Any, scale: float) -> Any:
    """scores[m, n] = scale * query[D, m]^T keys[D, n], in SBUF for the recipes."""
    shape = (query.shape[1], keys.shape[1])
    product = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    scores = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_matmul(dst=product, stationary=query, moving=keys)
    nisa.activation(dst=scores, op=nl.copy, data=product, scale=scale)
    return scores


def change(scores: Any, tile: QueryTile, step: Step, recipes: Any) -> None:
    """Apply the score recipe to all scores [m, n], then mask the windows that are not full."""
    score, mask, masks = recipes
    first = step.chunk + step.start
    if score is not None:
        score.apply(scores, tile.start, first, tile.head)
    for window in step.windows:
        part = scores[:, window.start : window.stop]
        if window.kind == EMPTY:
            nisa.memset(dst=part, value=MINUS_INFINITY)
        elif masks:
            keep_seen(part, masks[0], window)
        elif mask is not None:
            mask.apply(part, tile.start, first + window.start, tile.head)


def keep_seen(scores: Any, masks: Any, window: Window) -> None:
    """Minus infinity where the mask of a partial block is 0. Dimensions: scores [m, w], masks [P, BQ, BK]."""
    m, width = scores.shape
    seen = nl.ndarray(scores.shape, dtype=nl.uint8, buffer=nl.sbuf)
    rows, columns = slice(window.row, window.row + m), slice(window.column, window.column + width)
    nisa.dma_copy(dst=seen, src=masks[window.block, rows, columns])
    nisa.select_reduce(dst=scores, predicate=seen, on_true=scores, on_false=MINUS_INFINITY)


def lowered(scores: Any, before: Any) -> Any:
    """low[m, 1] = min(-max(scores), LARGEST, low of earlier steps): finite where all scores are minus infinity."""
    low = column_like(scores)
    nisa.tensor_reduce(dst=low, op=nl.maximum, data=scores, axis=1, negate=True)
    if before is None:
        nisa.tensor_scalar(dst=low, data=low, op0=nl.minimum, operand0=LARGEST)
    else:
        nisa.tensor_scalar(
            dst=low, data=low, op0=nl.minimum, operand0=LARGEST, op1=nl.minimum, operand1=before
        )
    return low


def weigh(scores: Any, low: Any, dtype: Any) -> tuple[Any, Any]:
    """weights[m, n] = exp(scores + low) in the dtype of the tensors, and their float32 sums [m, 1], in one pass."""
    weights, total = nl.ndarray(scores.shape, dtype=dtype, buffer=nl.sbuf), column_like(scores)
    nisa.activation(
        dst=weights,
        op=nl.exp,
        data=scores,
        bias=low,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    return weights, total


def multiply_values(weights: Any, values: Any, first: int) -> Any:
    """rows[m, D] = weights[m, n] v[n, D] in PSUM, 128 keys at a time. Dimensions: values [128, c/128, D]."""
    m, n = weights.shape
    side = nl.tile_size.pmax
    rows = nl.ndarray((m, values.shape[2]), dtype=nl.float32, buffer=nl.psum)
    for start in range(0, n, side):
        height = min(side, n - start)
        in_psum = nl.ndarray((height, m), dtype=weights.dtype, buffer=nl.psum)
        turned = nl.ndarray((height, m), dtype=weights.dtype, buffer=nl.sbuf)
        nisa.nc_transpose(dst=in_psum, data=weights[:, start : start + height])
        nisa.tensor_copy(dst=turned, src=in_psum)
        nisa.nc_matmul(dst=rows, stationary=turned, moving=values[:height, first + start // side, :])
    return rows


def rescale_and_add(old: Any, factor: Any, new: Any) -> Any:
    """old * factor + new in SBUF. Dimensions: old, new [m, f], factor [m, 1]."""
    result = nl.ndarray(old.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=result, data=old, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=new
    )
    return result


def store(out: Any, rows: Any, total: Any) -> None:
    """out[m, D] = rows / total, rounded once; 0 where nothing was seen (else the total is at least about 1)."""
    inverse = column_like(total)
    tile = nl.ndarray(out.shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=inverse, data=total, op0=nl.maximum, operand0=0.5)
    nisa.reciprocal(dst=inverse, data=inverse)
    nisa.tensor_scalar(dst=tile, data=rows, op0=nl.multiply, operand0=inverse)
    nisa.dma_copy(dst=out, src=tile)
