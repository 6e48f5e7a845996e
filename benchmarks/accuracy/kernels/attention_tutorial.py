"""Self-attention of the NKI tutorial (d 128, s 4096) after public rewrites: trace `ac-attention` of ucb-bar/autocomp.

Code numbers are positions in the trace. Codes 3, 5 and 7 are one kernel in three passes over the keys; code 9 does
everything for a tile of queries before the next. Inputs are float32: the results that the trace prints before the
first rewrite agree with the reference to 1e-6, and its seventh code only gains by converting v to bfloat16 first.

Scores are made with `is_transpose=True` although `moving` is no identity: on trn1 a hint that leaves the product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.attention_steps import (
    BANK,
    SIDE,
    copied,
    in_psum,
    in_sbuf,
    load,
    negative,
    piece,
    product,
    reduced,
    transposed,
)


@nki.jit
def three_passes(q: Any, k: Any, v: Any, code: int) -> Any:
    """ac-attention-3, -5, -7: row maxima of all tiles of queries, then all sums, then all outputs; scores made thrice.

    Dimensions: q, k, v [128, S] -> [S, 128].
    Code 5 keeps weights in bfloat16 and sums them in the Scalar engine; code 7 converts v before it is transposed too.
    """
    depth, length = q.shape
    out = nl.ndarray((length, depth), dtype=q.dtype, buffer=nl.shared_hbm)
    queries, keys, values = load(q), load(k), load(v)
    tiles = length // SIDE
    maxima, sums, inverses = (in_sbuf((SIDE, tiles)) for _ in range(3))
    for tile in range(tiles):
        find_maximum(maxima[:, tile : tile + 1], queries[:, piece(tile)], keys)
    nisa.memset(dst=sums, value=0.0)
    for tile in range(tiles):
        column = slice(tile, tile + 1)
        sum_weights = sum_in_vector_engine if code < 5 else sum_in_scalar_engine
        sum_weights(sums[:, column], queries[:, piece(tile)], keys, maxima[:, column])
    nisa.reciprocal(dst=inverses, data=sums)
    for tile in range(tiles):
        column = slice(tile, tile + 1)
        rows = weigh_values(
            queries[:, piece(tile)], keys, values, maxima[:, column], inverses[:, column], code
        )
        store(out[piece(tile), :], rows, code)
    return out


def scores_of(query: Any, keys: Any, block: int) -> Any:
    """scores[128, 512] = query[128, 128].T @ a block of keys[128, S], float32 in PSUM."""
    return product(query, keys[:, piece(block, BANK)], is_transpose=True)


def find_maximum(maximum: Any, query: Any, keys: Any) -> None:
    """maximum[128, 1] of all scores of a tile of queries."""
    running = reduced(nl.maximum, scores_of(query, keys, 0))
    for block in range(1, keys.shape[1] // BANK):
        found = reduced(nl.maximum, scores_of(query, keys, block))
        nisa.tensor_tensor(dst=running, data1=running, data2=found, op=nl.maximum)
    nisa.tensor_copy(dst=maximum, src=running)


def sum_in_vector_engine(total: Any, query: Any, keys: Any, maximum: Any) -> None:
    """total[128, 1] += sum(exp(scores - maximum)): a pass of the Scalar and one of the Vector engine for a block."""
    low = negative(maximum)
    for block in range(keys.shape[1] // BANK):
        weights = in_sbuf((SIDE, BANK))
        nisa.activation(dst=weights, op=nl.exp, data=scores_of(query, keys, block), bias=low)
        part = reduced(nl.add, weights)
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)


def sum_in_scalar_engine(total: Any, query: Any, keys: Any, maximum: Any) -> None:
    """total[128, 1] = sum(exp(scores - maximum)), in the accumulator of the Scalar engine; read twice."""
    low = negative(maximum)
    result = in_sbuf((SIDE, 1))
    blocks = keys.shape[1] // BANK
    for block in range(blocks):
        scores = scores_of(query, keys, block)
        nisa.activation(
            dst=in_sbuf((SIDE, BANK)),
            op=nl.exp,
            data=scores,
            bias=low,
            reduce_op=nl.add,
            reduce_res=result if block in (0, blocks - 1) else None,
            reduce_cmd=nisa.reduce_cmd.reduce if block else nisa.reduce_cmd.reset_reduce,
        )
    nisa.tensor_copy(dst=total, src=result)


def weigh_values(query: Any, keys: Any, values: Any, maximum: Any, inverse: Any, code: int) -> Any:
    """rows[128, 128] in PSUM: normalised weights times v, both transposed block by block when needed."""
    dtype = nl.float32 if code < 5 else nl.bfloat16
    rows = in_psum((SIDE, values.shape[0]))
    for block in range(keys.shape[1] // BANK):
        scores, low = scores_of(query, keys, block), negative(maximum)
        weights, normal = in_sbuf((SIDE, BANK), dtype), in_sbuf((SIDE, BANK), dtype)
        nisa.activation(dst=weights, op=nl.exp, data=scores, bias=low)
        nisa.tensor_scalar(
            dst=normal, data=weights, op0=nl.multiply, operand0=inverse, engine=nisa.engine.vector
        )
        for part in range(BANK // SIDE):
            value = values[:, piece(block * (BANK // SIDE) + part)]
            if code == 7:
                narrow = in_sbuf(value.shape, dtype)
                nisa.tensor_copy(dst=narrow, src=value, engine=nisa.engine.vector)
                value = narrow
            stationary, moving = transposed(normal[:, piece(part)], dtype), transposed(value, dtype)
            nisa.nc_matmul(dst=rows, stationary=stationary, moving=moving)
    return rows


def store(out: Any, rows: Any, code: int) -> None:
    """Copy out of PSUM, a second time in code 3; later codes leave bfloat16 to the converting DMA."""
    tile = copied(rows, nl.float32 if code < 5 else nl.bfloat16)
    if code < 5:
        tile = copied(tile, out.dtype)
    nisa.dma_copy(dst=out, src=tile)


@nki.jit
def tile_by_tile(q: Any, k: Any, v: Any) -> Any:
    """ac-attention-9: v transposed once; per tile of queries the maximum, then the scores again in parts of 128 keys.

    Dimensions: q, k, v [128, S] -> [S, 128].
    """
    depth, length = q.shape
    out = nl.ndarray((length, depth), dtype=q.dtype, buffer=nl.shared_hbm)
    queries, keys = load(q), load(k)
    values = [transposed(load(v[:, piece(part)]), nl.bfloat16) for part in range(length // SIDE)]
    blocks = length // BANK
    for tile in range(length // SIDE):
        query = queries[:, piece(tile)]
        sums, maxima = in_sbuf((SIDE, length // SIDE)), in_sbuf((SIDE, blocks))
        nisa.memset(dst=sums, value=0.0)
        for block in range(blocks):
            scores = scores_of(query, keys, block)
            nisa.tensor_reduce(dst=maxima[:, block : block + 1], op=nl.maximum, data=scores, axis=1)
        maximum = reduced(nl.maximum, maxima)
        rows = weigh_parts(query, keys, values, maximum, sums)
        inverse = in_sbuf((SIDE, 1))
        nisa.reciprocal(dst=inverse, data=reduced(nl.add, sums))
        nisa.tensor_scalar(dst=rows, data=rows, op0=nl.multiply, operand0=inverse, engine=nisa.engine.vector)
        nisa.dma_copy(dst=out[piece(tile), :], src=copied(rows, nl.float32))
    return out


def weigh_parts(query: Any, keys: Any, values: list[Any], maximum: Any, sums: Any) -> Any:
    """rows[128, 128] in PSUM: weights of 128 keys at a time, their sums into a column of `sums`, times v."""
    rows = in_psum((SIDE, values[0].shape[1]))
    for block in range(keys.shape[1] // BANK):
        scores = scores_of(query, keys, block)
        for part in range(BANK // SIDE):
            index = block * (BANK // SIDE) + part
            weights = in_sbuf((SIDE, SIDE), nl.bfloat16)
            nisa.activation(dst=weights, op=nl.exp, data=scores[:, piece(part)], bias=negative(maximum))
            nisa.tensor_reduce(dst=sums[:, index : index + 1], op=nl.add, data=weights, axis=1)
            nisa.nc_matmul(dst=rows, stationary=transposed(weights), moving=values[index])
    return rows


# ---- the rows -----------------------------------------------------------------------------------------------------


def _case(kernel: Any, *options: int) -> Case:
    return Case(kernel, (*(np.zeros((SIDE, 4096), np.float32) for _ in range(3)), *options), host_us)


for _code in (3, 5, 7):
    row(f"ac-attention-{_code}", lambda code=_code: _case(three_passes, code))
row("ac-attention-9", lambda: _case(tile_by_tile))
