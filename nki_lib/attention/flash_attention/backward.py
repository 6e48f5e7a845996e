"""FlashAttention backward for query heads that share one key head. Letters as in `kernel.py`; n is up to 512 here.

The loops are the other way round: outside chunks of keys, whose gradients stay in PSUM, inside tiles of queries, whose
gradients stay in SBUF with all that a tile needs. `op.py` gives one launch no more queries than fit. Weights are
computed again from the scores and the log sum exp. Nothing is summed in an order that depends on anything but shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.flash_attention.bias_gradient import BiasGradient, score_gradient
from nki_lib.attention.flash_attention.gradients import KeyGradients, Queries, clear
from nki_lib.attention.flash_attention.kernel import multiply_scores
from nki_lib.attention.flash_attention.masking import ScoreRules
from nki_lib.attention.flash_attention.order import query_tiles

CONTRACT, MULTIPLY = 1, 2
"""How many pairs the later stages of the pipeline lag behind `differentiate`."""


@nki.jit
def flash_attention_backward(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    grad: Any,
    lse: Any,
    scale: float,
    causal: bool,
    first: int,
    window: int | None = None,
    softcap: float | None = None,
    bias: Any = None,
    q_ids: Any = None,
    k_ids: Any = None,
    grad_lse: Any = None,
    bias_gradient: bool = False,
) -> Any:
    """The gradients of q, k and v, given that of the output (grad) and, if it was used, that of the log sum exp.

    Dimensions: q, out, grad [G, Sq, D], lse, grad_lse [G, Sq], k, v [Sk, D] -> dq [G, Sq, D] in the tensors' dtype,
    dk, dv [Sk, D] in float32. The first query stands at key `first`; scale > 0; all else as in the forward kernel.
    bias_gradient: also the gradient of every score where the bias was added to it, [G, Sq, Sk] in float32.

    Pseudocode:
        for each chunk of keys, for each tile of queries that sees some of it:
            differentiate:  shift = row sums of grad * out - grad_lse, once for each tile
                            weights = exp(scores - lse)
                            dscores = (grad v^T - shift) * weights              # stored if the bias has a gradient
                            dscores *= 1 - tanh^2                               # under a soft cap
            contract:       dv += weights^T grad; dk += dscores^T q             # in PSUM, stored after the last tile
            multiply_keys:  dq of the tile += dscores k                         # in SBUF
        store dq of each tile

    The three stages are a pipeline, as in the forward kernel.
    """
    dq = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    dk, dv = (nl.ndarray(k.shape, dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2))
    rules = ScoreRules(scale, causal, window, softcap, bias, q_ids)
    tiles = query_tiles(q.shape, k.shape[0], causal, window, first)
    queries = [Queries(tile, q, out, grad, lse, grad_lse) for tile in tiles]
    dbias = BiasGradient(*q.shape[:2], k.shape[0]) if bias_gradient else None
    pairs = []
    for start in range(0, k.shape[0], nl.tile_size.psum_bank_fmax):
        stop = min(start + nl.tile_size.psum_bank_fmax, k.shape[0])
        of_chunk = pairs_of(queries, KeyGradients(k, v, k_ids, start, stop))
        if not of_chunk:
            clear(dk[start:stop, :], dv[start:stop, :])
        pairs += of_chunk
    for now in range(len(pairs) + MULTIPLY):
        if now < len(pairs):
            differentiate(pairs[now], rules, dbias)
        if 0 <= now - CONTRACT < len(pairs):
            contract(pairs[now - CONTRACT], dk, dv, scale)
        if 0 <= now - MULTIPLY < len(pairs):
            multiply_keys(pairs[now - MULTIPLY])
    for each in queries:
        each.store(dq, scale)
    if dbias is None:
        return dq, dk, dv
    dbias.clear(tiles)
    return dq, dk, dv, dbias.out


@dataclass(eq=False)
class Pair:
    """A tile of queries and the n keys `low` ... `high - 1` of a chunk, and what each stage leaves for the next."""

    queries: Queries
    keys: KeyGradients
    low: int
    high: int
    is_first: bool
    is_last: bool
    weights: Any = None
    dscores: Any = None
    turned: Any = None


def pairs_of(queries: list[Queries], keys: KeyGradients) -> list[Pair]:
    """The tiles that see some of a chunk."""
    pairs = []
    for each in queries:
        low, high = each.tile.span(keys.start, keys.stop)
        if low < high:
            pairs.append(Pair(each, keys, low, high, not pairs, False))
    if pairs:
        seen = min(pair.low for pair in pairs), max(pair.high for pair in pairs)
        keys.complete = seen == (keys.start, keys.stop)
        pairs[-1].is_last = True
    return pairs


def differentiate(pair: Pair, rules: ScoreRules, dbias: BiasGradient | None) -> None:
    """pair.weights and pair.dscores [m, n], in the tensors' dtype; dscores also to dbias, if there is one.

    Pseudocode:
        weights = exp(scores - lse)
        dscores = (grad v^T - shift) * weights          # these go to dbias
        if there is a soft cap: dscores *= 1 - tanh^2
    """
    queries, keys = pair.queries, pair.keys
    queries.load()
    keys.load()
    k, v = (chunk.piece(pair.low - keys.start, pair.high - keys.start) for chunk in (keys.k, keys.v))
    scores = multiply_scores(queries.q_parts, [k])
    dweights = multiply_scores(queries.grad_parts, [v])
    rules.cap(scores)
    slope = None if rules.softcap is None else squares(scores)
    rules.mask(scores, queries.tile, pair.low, [k.ids])
    weights = nl.ndarray(scores.shape, dtype=queries.q.dtype, buffer=nl.sbuf)
    nisa.activation(dst=weights, op=nl.exp, data=scores, scale=rules.scale, bias=queries.low)
    dscores = score_gradient(dweights, queries.shift, weights, weights.dtype)
    if dbias is not None:
        dbias.store(queries.tile, pair.low, dweights, queries.shift, weights)
    if slope is not None:
        nisa.scalar_tensor_tensor(
            dst=dscores,
            data=slope,
            op0=nl.subtract,
            operand0=1.0,
            reverse0=True,
            op1=nl.multiply,
            operand1=dscores,
        )
    pair.weights, pair.dscores = weights, dscores


def contract(pair: Pair, dk: Any, dv: Any, scale: float) -> None:
    """dv += weights^T grad and dk += dscores^T q, 128 keys at a time; stored after the last tile of queries."""
    queries, keys, side = pair.queries, pair.keys, nl.tile_size.pmax
    if pair.is_first:
        keys.start_sums()
    count = pair.high - pair.low
    for start in range(0, count, side):
        columns = slice(start, min(start + side, count))
        height, block = columns.stop - start, (pair.low - keys.start + start) // side
        dv_rows, dk_rows = keys.dv[:height, block, :], keys.dk[:height, block, :]
        nisa.nc_matmul(dst=dv_rows, stationary=pair.weights[:, columns], moving=queries.grad)
        nisa.nc_matmul(dst=dk_rows, stationary=pair.dscores[:, columns], moving=queries.q)
    pair.turned = transpose_columns(pair.dscores)
    if pair.is_last:
        keys.store(dk, dv, scale)


def squares(tile: Any) -> Any:
    """tile * tile in float32 in SBUF."""
    result = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.square, data=tile)
    return result


def transpose_columns(tile: Any) -> list[Any]:
    """[m, n] as blocks [128, m] in SBUF, the last one perhaps lower, through one PSUM bank.

    The Scalar engine copies them out: the Vector engine has more to do.
    """
    m, n = tile.shape
    side = nl.tile_size.pmax
    full, rest = divmod(n, side)
    shape = (min(side, n), full + (rest > 0), m)
    in_psum = nl.ndarray(shape, dtype=tile.dtype, buffer=nl.psum)
    in_sbuf = nl.ndarray(shape, dtype=tile.dtype, buffer=nl.sbuf)
    blocks = []
    for block in range(shape[1]):
        start, height = block * side, min(side, n - block * side)
        nisa.nc_transpose(dst=in_psum[:height, block, :], data=tile[:, start : start + height])
        blocks.append(in_sbuf[:height, block, :])
    if full:
        nisa.activation(dst=in_sbuf[:, :full, :], op=nl.copy, data=in_psum[:, :full, :])
    if rest:
        nisa.activation(dst=in_sbuf[:rest, full, :], op=nl.copy, data=in_psum[:rest, full, :])
    return blocks


def multiply_keys(pair: Pair) -> None:
    """dq of the tile += dscores[m, n] k[n, D], 128 keys at a time."""
    rows = pair.keys.k.values
    first = (pair.low - pair.keys.start) // nl.tile_size.pmax
    m = pair.dscores.shape[0]
    product = nl.ndarray((m, rows.shape[2]), dtype=nl.float32, buffer=nl.psum)
    for index, block in enumerate(pair.turned):
        height = block.shape[0]
        nisa.nc_matmul(dst=product, stationary=block, moving=rows[:height, first + index, :])
    pair.queries.add(product)
