"""Attention of one or a few new tokens against a cache of keys and values, for one sequence and all its heads.

Letters used in every docstring here:
  Hkv key heads                          L  keys of a span on each partition
  G   query heads of one key head        n  some of these L, as many as fit where they are needed
  T   new tokens of the sequence         D  head dimension, up to 128
  m   = G * T rows of one key head, up to 64, those of a query head next to each other

Decoding reads every key once and does little with it, so the cache sets the pace. The keys of a span lie on all 128
partitions (`loading.py`), and so do their scores, [128, L, m]: maxima, exponentials and sums are taken 128 keys at a
time, however few rows there are. The length of the sequence is data (`masking.py`): one program serves all lengths up
to `keys`. Read `flash_decode` first, then the stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.flash_decode.loading import (
    Span,
    keys_per_partition,
    load_places,
    load_queries,
    load_sinks,
    load_span,
    spans_of,
    transpose_keys,
)
from nki_lib.attention.flash_decode.masking import (
    clear_values,
    load_length,
    make_visibility,
    mask_scores,
)
from nki_lib.common.tiles import LOWEST

# Of a key head: the scores of a span, [128, L, m], are then as large as one instruction may cover.
MOST_ROWS = 64


@dataclass(eq=False)
class Head:
    """What is known of the m rows of one key head so far: top, their maximum, and total, both [m, 1]; rows [m, D].

    All are relative to top: exp(-top) is in total and rows already. With a sink, its score is the first top.
    """

    index: int
    top: Any = None
    total: Any = None
    rows: Any = None


@dataclass(eq=False)
class Step:
    """One head against one span, and what each stage leaves for the next."""

    head: Head
    span: Span
    visibility: Any
    places: Any
    is_last: bool
    values: Any = None
    scores: Any = None
    weights: Any = None
    partial: Any = None
    factor: Any = None


@nki.jit
def flash_decode(
    q: Any,
    k: Any,
    v: Any,
    length: Any,
    keys: int,
    tokens: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    places: Any = None,
) -> Any:
    """softmax(scale * q k^T) v where token t of T sees the keys j <= length - T + t of a cache.

    Dimensions: q [Hkv, m, D]; k, v [Hkv, S, D]; length [1, 1] int32 -> [Hkv, m, D].
    keys: how many keys are read, at least the length: a power of two, 128 or more. tokens: T, which divides m.
    window: only the last `window` of the visible keys. softcap: scores become softcap * tanh(score / softcap).
    sinks: [Hkv, m, 1] float32, a score for each row that takes weight and gives nothing.
    places: for a cache in blocks, k, v [num_blocks, Hkv, block_size, D]: [spans, 128, L/c] int32, where each run of c
    keys lies, in runs from the beginning of the cache, for key head 0.

    Pseudocode:
        for each span of keys: which token sees which key, from the length
        for each key head, for each span:
            score:       scores = k q^T, -inf where not seen
            weigh:       weights = exp(scores - running maximum)
            accumulate:  rows = rows * factor + weights^T v, and so their sum; after the last span store rows / sum

    The stages are a pipeline: each is issued one step behind the one before, so that no engine waits for the chain of
    small instructions between scores and weights.
    """
    heads, _, depth = q.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    per = keys_per_partition(keys, depth, k.dtype.itemsize)
    spans = spans_of(keys, per)
    word = nl.int32 if depth * k.dtype.itemsize % 4 == 0 else nl.int16
    ends = load_length(length)
    seen = [make_visibility(span, ends, tokens, window, word) for span in spans]
    where = [None if places is None else load_places(places, span) for span in spans]
    queries = load_queries(q)
    ones = nl.ndarray((nl.tile_size.pmax, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    steps = []
    for h in range(heads):
        head = Head(h) if sinks is None else Head(h, load_sinks(sinks[h, :, :]), ones[: q.shape[1], :])
        for i in range(len(spans)):
            steps.append(Step(head, spans[i], seen[i], where[i], i == len(spans) - 1))
    for now in range(len(steps) + 2):
        if now < len(steps):
            score(steps[now], queries, k, v, scale, softcap)
        if 0 <= now - 1 < len(steps):
            weigh(steps[now - 1])
        if now >= 2:
            accumulate(steps[now - 2], ones, out)
    return out


def score(step: Step, queries: Any, k: Any, v: Any, scale: float, softcap: float | None) -> None:
    """The scores of one head for one span, and its values on their way.

    Dimensions: queries [D, Hkv, m] -> step.scores [128, L, m] float32, step.values [128, L, D].

    Pseudocode:
        scores = scale * k q^T, capped, -inf where not seen
    """
    head, span = step.head, step.span
    keys = load_span(k, head.index, span, step.places)
    step.values = load_span(v, head.index, span, step.places)
    query = queries[:, head.index, :]
    m = query.shape[1]
    shape = (nl.tile_size.pmax, span.per, m)
    step.scores = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    width = max(1, min(span.per, nl.tile_size.psum_bank_fmax // m))
    for first in range(0, span.per, width):
        stop = min(first + width, span.per)
        capped = multiply_scores(keys[:, first:stop, :], query, scale, softcap)
        mask_scores(step.scores[:, first:stop, :], capped, step.visibility.seen[:, first:stop, :])


def weigh(step: Step) -> None:
    """The weights of one head for one span, relative to the maximum so far.

    Dimensions: step.scores [128, L, m] -> step.weights [128, L, m]; step.partial [128, m], their
    sums, step.factor [m, 1] if there is an earlier top; head.top [m, 1].

    Pseudocode:
        top = max(scores, earlier top); factor = exp(earlier top - top)
        weights = exp(scores - top)
    """
    shape = step.scores.shape
    subtract_top(step, step.scores)
    step.weights = nl.ndarray(shape, dtype=step.values.dtype, buffer=nl.sbuf)
    nisa.activation(dst=step.weights, op=nl.exp, data=step.scores)
    step.partial = nl.ndarray((shape[0], shape[2]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=step.partial, op=nl.add, data=step.weights.permute((0, 2, 1)), axis=2)


def multiply_scores(keys: Any, query: Any, scale: float, softcap: float | None) -> Any:
    """scale * keys query, capped, in SBUF. Dimensions: keys [128, n, D], query [D, m] -> [128, n, m] float32."""
    side, count, _ = keys.shape
    shape = (side, count, query.shape[1])
    scores = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    transposed = transpose_keys(keys)
    for i in range(count):
        nisa.nc_matmul(dst=scores[:, i, :], stationary=transposed[i], moving=query)
    capped = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    if softcap is None:
        nisa.activation(dst=capped, op=nl.copy, data=scores, scale=scale)
    else:
        nisa.activation(dst=capped, op=nl.tanh, data=scores, scale=scale / softcap)
        nisa.tensor_scalar(dst=capped, data=capped, op0=nl.multiply, operand0=softcap)
    return capped


def subtract_top(step: Step, scores: Any) -> None:
    """scores -= the maximum so far, of each row over all keys. Dimensions: scores [128, L, m]; step.head.top [m, 1].

    Partitions meet in the Tensor engine: maxima [128, m] are transposed, reduced, spread out again and transposed back.
    """
    side, count, m = scores.shape
    earlier = step.head.top
    by_partition = nl.ndarray((side, m), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=by_partition, op=nl.maximum, data=scores.permute((0, 2, 1)), axis=2)
    by_row = nl.ndarray((m, side), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=by_row, data=by_partition)
    top = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=top, op=nl.maximum, data=by_row, axis=1)
    nisa.tensor_scalar(dst=top, data=top, op0=nl.maximum, operand0=LOWEST if earlier is None else earlier)
    wide = nl.ndarray((m, side), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=wide, src=top.broadcast(1, side))
    everywhere = nl.ndarray((side, m), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=everywhere, data=wide)
    nisa.tensor_tensor(
        dst=scores, data1=scores, data2=everywhere.expand_dim(1).broadcast(1, count), op=nl.subtract
    )
    if earlier is not None:
        step.factor = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=step.factor, data=earlier, op0=nl.subtract, operand0=top)
        nisa.activation(dst=step.factor, op=nl.exp, data=step.factor)
    step.head.top = top


def accumulate(step: Step, ones: Any, out: Any) -> None:
    """Add a span's weighted rows of v to its head; after the last span, normalise and store.

    Dimensions: step.weights [128, L, m], step.values [128, L, D], step.partial [128, m], ones [128, 1].

    Pseudocode:
        clear what lies in v after the end of the sequence
        rows = rows * factor + weights^T v; total = total * factor + partial^T 1
        after the last span: out = rows / total, or 0 where no key was seen
    """
    head = step.head
    clear_values(step.values, step.visibility.kept)
    total = nl.ndarray((step.partial.shape[1], 1), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=step.partial, moving=ones)
    head.rows = rescale_and_add(head.rows, step.factor, multiply_values(step.weights, step.values))
    head.total = rescale_and_add(head.total, step.factor, total)
    if step.is_last:
        store(out[head.index, :, :], head.rows, head.total)


def multiply_values(weights: Any, values: Any) -> Any:
    """weights^T values in PSUM. Dimensions: weights [128, L, m], values [128, L, D] -> [m, D] float32.

    The product is made transposed: m is small, and the Tensor engine takes time for each column that moves through it.
    """
    count, m = weights.shape[1:]
    depth = values.shape[2]
    across = nl.ndarray((depth, m), dtype=nl.float32, buffer=nl.psum)
    for i in range(count):
        nisa.nc_matmul(dst=across, stationary=values[:, i, :], moving=weights[:, i, :])
    rows = nl.ndarray((m, depth), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=rows, data=settled(across))
    return rows


def settled(in_psum: Any) -> Any:
    """A copy in SBUF."""
    tile = nl.ndarray(in_psum.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=in_psum)
    return tile


def rescale_and_add(old: Any, factor: Any, new: Any) -> Any:
    """old * factor + new in SBUF; new if there is no old. Dimensions: old, new [m, f], factor [m, 1]."""
    if old is None:
        return settled(new)
    result = nl.ndarray(old.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=result, data=old, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=new
    )
    return result


def store(out: Any, rows: Any, total: Any) -> None:
    """out[m, D] = rows / total. A row that saw a key has a total of about 1 or more, one that saw none 0: it gets 0."""
    inverse = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    tile = nl.ndarray(out.shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=inverse, data=total, op0=nl.maximum, operand0=0.5)
    nisa.reciprocal(dst=inverse, data=inverse)
    nisa.tensor_scalar(dst=tile, data=rows, op0=nl.multiply, operand0=inverse)
    nisa.dma_copy(dst=out, src=tile)
