"""Backward pass of causal FlashAttention on trn1: `flash_attn_bwd` of nki-samples, one head of its launch grid."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, Timed, device_us, host_us, row
from benchmarks.accuracy.kernels.attention_steps import (
    BANK,
    SIDE,
    copied,
    in_psum,
    in_sbuf,
    load,
    load_transposed,
    piece,
    product,
    reduced,
    transposed,
)

MASKED = -9984.0


@nki.jit
def flash_attention_backward(q: Any, k: Any, v: Any, o: Any, dy: Any, lse: Any, scale: float) -> Any:
    """ns-fab: gradients of q, k and v of one head; blocks of 512 keys outside, tiles of 128 queries inside.

    Dimensions: q, k, v, o, dy [128, S], lse [128, S/128] -> dq, dk, dv [128, S].

    Pseudocode:
        low = -lse; sums = row sums of dy o
        for each block of keys: load k, v; transpose k; dk, dv = 0 in PSUM
            for each tile of queries that sees a key of the block: load dy, q (scaled); `add_gradients`
            store dk, dv
        store dq
    Tiles that a block hides are neither loaded nor computed (a mask in the original). Zeros that are overwritten
    before they are read are left out.
    """
    length = q.shape[1]
    gradients = [nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm) for _ in range(3)]
    low = in_sbuf(lse.shape)
    nisa.tensor_scalar(dst=low, data=load(lse), op0=nl.multiply, operand0=-1.0)
    sums = row_sums(dy, o)
    dq = [in_sbuf((SIDE, SIDE)) for _ in range(length // SIDE)]
    for tile in dq:
        nisa.memset(dst=tile, value=0.0)
    for block in range(length // BANK):
        columns = piece(block, BANK)
        keys, values = load(k[:, columns]), load(v[:, columns])
        turned = [transposed(keys[:, piece(part)]) for part in range(BANK // SIDE)]
        dk, dv = in_psum((SIDE, BANK)), in_psum((SIDE, BANK))
        for tile in range(block * (BANK // SIDE), length // SIDE):
            gradient, query = load(dy[:, piece(tile)]), load_scaled(q[:, piece(tile)], scale)
            statistics = low[:, tile : tile + 1], sums[:, tile : tile + 1]
            weights = weigh(query, keys, statistics[0], tile * SIDE - block * BANK)
            dx = add_gradients(gradient, query, values, weights, statistics[1], dk, dv)
            add_query_gradient(dq[tile], dx, turned, scale)
        nisa.dma_copy(dst=gradients[2][:, columns], src=copied(dv, q.dtype))
        nisa.dma_copy(dst=gradients[1][:, columns], src=copied(dk, q.dtype))
    for tile in range(length // SIDE):
        nisa.dma_copy(dst=gradients[0][:, piece(tile)], src=dq[tile])
    return tuple(gradients)


def load_scaled(window: Any, scale: float) -> Any:
    """A tile of queries, times the scale."""
    tile = load(window)
    result = in_sbuf(tile.shape, tile.dtype)
    nisa.tensor_scalar(dst=result, data=tile, op0=nl.multiply, operand0=scale)
    return result


def row_sums(dy: Any, o: Any) -> Any:
    """sums[128, S/128]: of dy o over the head dimension, from transposed loads in float32."""
    tiles = dy.shape[1] // SIDE
    sums = in_sbuf((SIDE, tiles))
    for tile in range(tiles):
        left, right = (load_transposed(x[:, piece(tile)], nl.float32) for x in (dy, o))
        both = in_sbuf(left.shape)
        nisa.tensor_tensor(dst=both, data1=left, data2=right, op=nl.multiply)
        partial = reduced(nl.add, both)
        nisa.tensor_reduce(dst=sums[:, tile : tile + 1], op=nl.add, data=partial, axis=1)
    return sums


def weigh(query: Any, keys: Any, low: Any, first: int) -> Any:
    """weights[128, 512] = exp(scores + low), masked where key > query; row i sees keys up to first + i.

    GpSimd, which selects, cannot reach PSUM: the scores are copied out first.
    """
    scores = copied(product(query, keys), nl.float32)
    masked, weights = in_sbuf(scores.shape, query.dtype), in_sbuf(scores.shape, query.dtype)
    nisa.affine_select(
        dst=masked,
        pattern=[[-1, BANK]],
        offset=first,
        channel_multiplier=1,
        on_true_tile=scores,
        on_false_value=MASKED,
        cmp_op=nl.greater_equal,
    )
    nisa.activation(dst=weights, op=nl.exp, data=masked, bias=low)
    return weights


def add_gradients(
    gradient: Any, query: Any, values: Any, weights: Any, row_sum: Any, dk: Any, dv: Any
) -> Any:
    """dv += dy weights and dk += q dx, both in PSUM; dx[128, 512] = (dy^T v - row sum) weights is returned."""
    nisa.nc_matmul(dst=dv, stationary=transposed(gradient), moving=weights)
    dweights = copied(product(gradient, values), weights.dtype)
    dx = in_sbuf(weights.shape, weights.dtype)
    nisa.scalar_tensor_tensor(
        dst=dx, data=dweights, op0=nl.subtract, operand0=row_sum, op1=nl.multiply, operand1=weights
    )
    nisa.nc_matmul(dst=dk, stationary=transposed(query), moving=dx)
    return dx


def add_query_gradient(dq: Any, dx: Any, keys: list[Any], scale: float) -> None:
    """dq[128, 128] += scale k dx^T, through PSUM; dx is transposed in four parts."""
    part, scaled = in_psum(dq.shape), in_sbuf(dq.shape, dx.dtype)
    for index, key in enumerate(keys):
        nisa.nc_matmul(dst=part, stationary=key, moving=transposed(dx[:, piece(index)]))
    nisa.tensor_scalar(dst=scaled, data=part, op0=nl.multiply, operand0=scale)
    nisa.tensor_tensor(dst=dq, data1=dq, data2=scaled, op=nl.add)


# ---- the row ------------------------------------------------------------------------------------------------------

HEADS, LENGTH = 4, 32 * 1024


def _heads_one_after_the_other(timed: Timed) -> float:
    """The launch grid has a program for each head; they share nothing, and one core runs them in turn."""
    return host_us(timed) + (HEADS - 1) * device_us(timed)


def _case() -> Case:
    tensors = (np.zeros((SIDE, LENGTH), ml_dtypes.bfloat16) for _ in range(5))
    statistics = np.zeros((SIDE, LENGTH // SIDE), np.float32)
    return Case(flash_attention_backward, (*tensors, statistics, SIDE**-0.5), _heads_one_after_the_other)


row("ns-fab", _case)
