"""FlashAttention forward for the query heads that share one key head.

Letters used in every docstring here:
  G  query heads of one key head     m  queries of a tile, up to 128
  Sq queries, Sk keys                n  keys of a block, up to 1024: two PSUM banks of scores
  D  head dimension, up to 256       c  keys of a chunk, up to 512: one PSUM bank, one load
                                     d  head dimension of a part, up to 128

Nothing of size Sq x Sk exists: the scores of one query tile against one key block live in PSUM and become, block by
block, a running sum of rows of V. Read `flash_attention` first, then its four stages; `order.py` says which tile meets
which block when, `loading.py` how queries and keys come in, `masking.py` what happens to scores before the softmax,
`statistics.py` what the softmax starts from and leaves behind. `backward.py` is the way back.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.flash_attention.loading import Chunk, KeyChunks, transpose_rows
from nki_lib.attention.flash_attention.masking import LARGEST, ScoreRules
from nki_lib.attention.flash_attention.order import Step, query_tiles, steps_in_order
from nki_lib.attention.flash_attention.statistics import SMALLEST, LogSumExp, Sinks
from nki_lib.common.tiles import column_like, load

WEIGH, TRANSPOSE, ACCUMULATE = 1, 3, 4
"""How many steps each stage of the pipeline lags behind `load_step`."""


@nki.jit
def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    scale: float,
    causal: bool,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    bias: Any = None,
    q_ids: Any = None,
    k_ids: Any = None,
    return_lse: bool = False,
) -> Any:
    """softmax(scores) v with float32 statistics, scores = scale * q k^T; causal: query i sees keys j <= i + Sk - Sq.

    Dimensions: q [G, Sq, D], k [Sk, D], v [Sk, D] -> [G, Sq, D]. Causal needs Sq <= Sk: every query sees a key.
    window: query i sees keys j > i + Sk - Sq - window. softcap: scores become softcap * tanh(scores / softcap).
    bias [G or 1, Sq or 1, Sk or 1], then added to them. q_ids [Sq], k_ids [Sk], float32: only equal ids see each other.
    sinks [G], float32: a score more in the denominator. return_lse: also log sum exp of a query's scores, as
    [G * tiles, 128], a row for each tile of queries, the last of a head incomplete.
    With bias or ids a query that sees no key gets zeros, and -inf.

    Pseudocode:
        for each step, a query tile and a block of keys that it sees:
            load:        q^T of the tile, k^T and v of the block, unless they are in SBUF already
            weigh:       weights = exp(scores - running maximum)
            transpose:   the weights, so that keys lie on the partitions
            accumulate:  output of the tile += weights v; after the tile's last block normalise and store

    Every engine works in order, so the stages are a pipeline: while the Vector and the Scalar engine turn the scores of
    one step into weights, the Tensor engine has the products of earlier steps to do. Without the lags it would wait for
    every exponential.
    """
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    rules = ScoreRules(abs(scale), causal, window, softcap, bias, q_ids)
    first = Sinks(sinks) if sinks is not None else None
    chunks = KeyChunks(k, v, k_ids)
    tiles = query_tiles(q.shape, k.shape[0], causal, window)
    lse = LogSumExp(len(tiles)) if return_lse else None
    steps = steps_in_order(tiles, chunks)
    for now in range(len(steps) + ACCUMULATE):
        if now < len(steps):
            load_step(steps[now], q, chunks, scale < 0)
        if 0 <= now - WEIGH < len(steps):
            weigh(steps[now - WEIGH], rules, first)
        if 0 <= now - TRANSPOSE < len(steps):
            transpose(steps[now - TRANSPOSE])
        if 0 <= now - ACCUMULATE < len(steps):
            accumulate(steps[now - ACCUMULATE], out, first, lse)
    return out if lse is None else (out, lse.store())


def load_step(step: Step, q: Any, chunks: KeyChunks, negated: bool) -> None:
    """tile.query, parts [d, m], and step.chunks, the step's n keys."""
    tile = step.tile
    if step.is_first:
        tile.query = transpose_rows(load(q[tile.head, tile.start : tile.stop, :]), negated)
    step.chunks = chunks.block(step.start, step.stop)


def weigh(step: Step, rules: ScoreRules, sinks: Sinks | None) -> None:
    """The weights of one query tile for one key block, relative to the maximum so far.

    Dimensions: tile.query, parts [d, m], step.chunks of n keys -> step.weights [m, n] in the dtype of the tensors,
    step.total [m, 1], tile.low [m, 1] = -scale * row maximum, step.factor [m, 1] unless it is the first block.

    Pseudocode:
        scores = query^T k^T                                        # [m, n] in PSUM
        cap, bias and mask the scores                               # those around the diagonal, if causal
        low = min(-max(scores) * scale, low of earlier blocks)
        factor = exp(low - low of earlier blocks)                   # what earlier sums shrink by
        weights = exp(scale * scores + low); total = sum(weights)   # one pass of the Scalar engine
    """
    tile, scale = step.tile, rules.scale
    scores = multiply_scores(tile.query, step.chunks)
    rules.cap(scores)
    rules.mask(scores, tile, step.start, [chunk.ids for chunk in step.chunks])
    if step.is_first and sinks is not None:
        tile.low = sinks.low(tile)
    low, step.total = column_like(scores), column_like(scores)
    nisa.tensor_reduce(dst=low, op=nl.maximum, data=scores, axis=1, negate=True)
    before = LARGEST if tile.low is None else tile.low  # a row of nothing but -inf stays finite
    nisa.tensor_scalar(dst=low, data=low, op0=nl.multiply, operand0=scale, op1=nl.minimum, operand1=before)
    if tile.low is not None:
        step.factor = column_like(scores)
        nisa.activation(dst=step.factor, op=nl.exp, data=tile.low, scale=-1.0, bias=low)
    tile.low = low
    step.weights = nl.ndarray(scores.shape, dtype=tile.query[0].dtype, buffer=nl.sbuf)
    nisa.activation(
        dst=step.weights,
        op=nl.exp,
        data=scores,
        scale=scale,
        bias=low,
        reduce_op=nl.add,
        reduce_res=step.total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )


def multiply_scores(query: list[Any], chunks: list[Chunk]) -> Any:
    """scores[m, n] = query[D, m]^T k^T[D, n], one PSUM bank a chunk; the parts of D are summed there."""
    n = sum(chunk.keys[0].shape[1] for chunk in chunks)
    scores = nl.ndarray((query[0].shape[1], n), dtype=nl.float32, buffer=nl.psum)
    column = 0
    for chunk in chunks:
        width = chunk.keys[0].shape[1]
        for part, keys in zip(query, chunk.keys):
            nisa.nc_matmul(dst=scores[:, column : column + width], stationary=part, moving=keys)
        column += width
    return scores


def transpose(step: Step) -> None:
    """step.transposed: the weights [m, n] as blocks [128 keys, m] in SBUF; the last block may have fewer keys.

    Pseudocode:
        for each PSUM bank full of blocks (four in float32, eight in bfloat16):
            transpose block by block into the bank
            copy them out at once
    """
    weights, m = step.weights, step.weights.shape[0]
    side = nl.tile_size.pmax
    width = nl.tile_size.psum_bank_fmax_bytes // weights.dtype.itemsize // side * side
    step.transposed = []
    for first in range(0, weights.shape[1], width):
        count = min(width, weights.shape[1] - first)
        full, rest = divmod(count, side)
        shape = (min(side, count), full + (rest > 0), m)
        in_psum = nl.ndarray(shape, dtype=weights.dtype, buffer=nl.psum)
        in_sbuf = nl.ndarray(shape, dtype=weights.dtype, buffer=nl.sbuf)
        for block in range(shape[1]):
            start, height = first + block * side, min(side, count - block * side)
            nisa.nc_transpose(dst=in_psum[:height, block, :], data=weights[:, start : start + height])
            step.transposed.append(in_sbuf[:height, block, :])
        if full:
            nisa.tensor_copy(dst=in_sbuf[:, :full, :], src=in_psum[:, :full, :])
        if rest:
            nisa.tensor_copy(dst=in_sbuf[:rest, full, :], src=in_psum[:rest, full, :])


def accumulate(step: Step, out: Any, sinks: Sinks | None, lse: LogSumExp | None) -> None:
    """Add a step's weighted rows of v to its tile; after the last step, normalise and store.

    Dimensions: step.transposed, blocks [128, m] of n keys; tile.rows [m, D] and tile.total [m, 1]; out [G, Sq, D].

    Pseudocode:
        rows = weights v                                            # accumulated in PSUM
        if there were earlier blocks:
            rows = tile.rows * factor + rows; total = tile.total * factor + total
        keep both, or store rows / total
    """
    tile = step.tile
    rows, total = multiply_values(step), step.total
    if step.is_first and sinks is not None:
        tile.total = sinks.total(tile)
    if tile.total is not None:
        total = rescale_and_add(tile.total, step.factor, total)
    if not step.is_first:
        rows = rescale_and_add(tile.rows, step.factor, rows)
    elif not step.is_last:
        in_psum, rows = rows, nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=rows, src=in_psum)
    tile.rows, tile.total = rows, total
    if step.is_last:
        if lse is not None:
            lse.keep(tile)
        store(out[tile.head, tile.start : tile.stop, :], rows, total)


def multiply_values(step: Step) -> Any:
    """rows[m, D] = weights[m, n] v[n, D], accumulated over 128 keys at a time in one PSUM bank."""
    blocks_per_chunk = nl.tile_size.psum_bank_fmax // nl.tile_size.pmax
    m, depth = step.weights.shape[0], step.chunks[0].values.shape[2]
    rows = nl.ndarray((m, depth), dtype=nl.float32, buffer=nl.psum)
    for i in range(len(step.transposed)):
        values = step.chunks[i // blocks_per_chunk].values
        block = step.transposed[i]
        nisa.nc_matmul(dst=rows, stationary=block, moving=values[: block.shape[0], i % blocks_per_chunk, :])
    return rows


def rescale_and_add(old: Any, factor: Any, new: Any) -> Any:
    """old * factor + new in SBUF. Dimensions: old, new [m, f], factor [m, 1]."""
    result = nl.ndarray(old.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=result, data=old, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=new
    )
    return result


def store(out: Any, rows: Any, total: Any) -> None:
    """out[m, D] = rows / total, rounded once to the type of the tensor; 0 / 0 is 0."""
    positive, inverse = column_like(total), column_like(total)
    tile = nl.ndarray(out.shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=positive, data=total, op0=nl.add, operand0=SMALLEST)
    nisa.reciprocal(dst=inverse, data=positive)
    nisa.tensor_scalar(dst=tile, data=rows, op0=nl.multiply, operand0=inverse)
    nisa.dma_copy(dst=out, src=tile)
