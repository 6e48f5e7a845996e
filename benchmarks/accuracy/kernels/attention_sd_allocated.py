"""Attention of a Stable Diffusion model with every tile at an address of its own (nki-samples, SDK 2.21), on trn1.

`allocated_fused_self_attn_for_SD_small_head_size`: two tiles of queries at a time in two sets of buffers. The rows are
thresholds asserted with a slack of 5 %.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.attention_steps import BANK, SIDE, piece

SCALE = 0.125
GROUPS = 2
BANKS_PER_GROUP = 4
BANK_BYTES = 2048
OUTPUT_BANKS, DIVISOR_BANKS = (1, 5), (2, 7)
REDUCED = 1024
"""Columns of a pass of the Scalar engine."""


class Layout:
    """Addresses in SBUF: one after the other for what stays, then one list of tiles for each buffer of the main loop.

    Dimensions: S keys. Of the scores there is one buffer for both groups, of all else one each.
    """

    def __init__(self, length: int) -> None:
        self.used = 0
        self.identity, self.wide_identity = self.tile((SIDE,), nl.bfloat16), self.tile((SIDE,))
        self.values = self.tile((length // SIDE, SIDE), nl.bfloat16)
        self.queries = self.tile((length // SIDE, SIDE), nl.bfloat16)
        self.keys = self.tile((length // BANK, BANK), nl.bfloat16)
        self.scores = self.tile((length,))
        self.weights = self.tiles(length, nl.bfloat16)
        self.turned = self.tiles(length, nl.bfloat16)
        self.divisor, self.spread = self.tiles(SIDE), self.tiles(SIDE)
        self.output, self.result = self.tiles(SIDE), self.tiles(SIDE)
        self.maxima, self.sums = self.tiles(length // BANK), self.tiles(length // REDUCED)
        self.lowest, self.total, self.inverse = self.tiles(1), self.tiles(1), self.tiles(1)

    def tile(self, free: tuple[int, ...], dtype: Any = nl.float32) -> Any:
        """A tile behind those before it."""
        made = nl.ndarray((SIDE, *free), dtype=dtype, buffer=nl.sbuf, address=(0, self.used))
        self.used += int(np.prod(free)) * made.dtype.itemsize
        return made

    def tiles(self, columns: int, dtype: Any = nl.float32) -> list[Any]:
        """One for each group."""
        return [self.tile((columns,), dtype) for _ in range(GROUPS)]


def in_bank(bank: int, columns: int = BANK) -> Any:
    """A float32 tile at the start of a PSUM bank."""
    return nl.ndarray((SIDE, columns), dtype=nl.float32, buffer=nl.psum, address=(0, bank * BANK_BYTES))


@nki.jit
def sd_attention_allocated(q: Any, k: Any, v: Any) -> Any:
    """ns-asd-*: softmax(0.125 q^T k) v, transposed. Products of bfloat16, everything else float32.

    Dimensions: q, k [128, S], v [S, 128] -> [128, S].

    Pseudocode:
        load v in tiles of 128, q in tiles of 128 (scaled in place), k in tiles of 512, converted to bfloat16
        for each tile of queries, in groups of two:
            score, weigh, divide by the sum of the weights what `multiply` makes, store
    """
    length = q.shape[1]
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    at = Layout(length)
    identity = nl.shared_constant(np.identity(SIDE, dtype=ml_dtypes.bfloat16))
    nisa.dma_copy(dst=at.identity, src=identity)
    nisa.dma_copy(dst=at.wide_identity, src=identity)
    for tile in range(length // SIDE):
        nisa.dma_copy(dst=at.values[:, tile, :], src=v[piece(tile), :])
    for tile in range(length // SIDE):
        query = at.queries[:, tile, :]
        nisa.dma_copy(dst=query, src=q[:, piece(tile)])
        nisa.tensor_scalar(dst=query, data=query, op0=nl.multiply, operand0=SCALE)
    for tile in range(length // BANK):
        nisa.dma_copy(dst=at.keys[:, tile, :], src=k[:, piece(tile, BANK)])
    for tile in range(length // SIDE):
        group = tile % GROUPS
        score(at, group, at.queries[:, tile, :])
        weigh(at, group)
        divide(at, group, multiply(at, group))
        nisa.dma_copy(dst=out[:, piece(tile)], src=at.result[group])
    return out


def score(at: Layout, group: int, query: Any) -> None:
    """scores[128, S] and lowest[128, 1] = -row maximum: copies out of PSUM that fold at the same time."""
    for tile in range(at.keys.shape[1]):
        scores = in_bank(group * BANKS_PER_GROUP + tile % BANKS_PER_GROUP)
        nisa.nc_matmul(dst=scores, stationary=query, moving=at.keys[:, tile, :])
        nisa.tensor_scalar_reduce(
            dst=at.scores[:, piece(tile, BANK)],
            data=scores,
            op0=nl.multiply,
            operand0=1.0,
            reduce_op=nl.maximum,
            reduce_res=at.maxima[group][:, tile : tile + 1],
        )
    nisa.tensor_reduce(dst=at.lowest[group], op=nl.maximum, data=at.maxima[group], axis=1, negate=True)


def weigh(at: Layout, group: int) -> None:
    """weights[128, S] = exp(scores - maximum) in bfloat16, and 1 / their sum spread over 128 columns, in two copies."""
    for part in range(at.sums[group].shape[1]):
        columns = piece(part, REDUCED)
        nisa.activation_reduce(
            dst=at.weights[group][:, columns],
            op=nl.exp,
            data=at.scores[:, columns],
            reduce_op=nl.add,
            reduce_res=at.sums[group][:, part : part + 1],
            bias=at.lowest[group],
        )
    nisa.tensor_reduce(dst=at.total[group], op=nl.add, data=at.sums[group], axis=1)
    nisa.reciprocal(dst=at.inverse[group], data=at.total[group])
    nisa.tensor_copy(dst=at.spread[group], src=at.inverse[group].broadcast(1, SIDE))
    nisa.tensor_copy(dst=at.divisor[group], src=at.spread[group])


def multiply(at: Layout, group: int) -> Any:
    """columns[128, 128] in PSUM = v^T weights^T; four transposes (products with the identity) to a bank and a copy."""
    turned, per_bank = at.turned[group], BANK // SIDE
    for tile in range(at.keys.shape[1]):
        in_psum = in_bank(group * BANKS_PER_GROUP + tile % BANKS_PER_GROUP)
        for part in range(per_bank):
            weights = at.weights[group][:, piece(tile * per_bank + part)]
            nisa.nc_matmul(dst=in_psum[:, piece(part)], stationary=weights, moving=at.identity)
        nisa.tensor_copy(dst=turned[:, piece(tile, BANK)], src=in_psum)
    columns = in_bank(OUTPUT_BANKS[group], SIDE)
    for tile in range(at.values.shape[1]):
        nisa.nc_matmul(
            dst=columns,
            stationary=at.values[:, tile, :],
            moving=turned[:, piece(tile)],
            accumulate=tile > 0,
        )
    return columns


def divide(at: Layout, group: int, columns: Any) -> None:
    """result[128, 128] = columns times the transposed divisor, a float32 product with the identity."""
    nisa.tensor_copy(dst=at.output[group], src=columns, engine=nisa.engine.vector)
    divisor = in_bank(DIVISOR_BANKS[group])[:, :SIDE]
    nisa.nc_matmul(dst=divisor, stationary=at.divisor[group], moving=at.wide_identity)
    nisa.tensor_tensor(dst=at.result[group], data1=at.output[group], data2=divisor, op=nl.multiply)


# ---- the rows -----------------------------------------------------------------------------------------------------


def _case(dtype: Any, length: int) -> Case:
    shapes = ((SIDE, length), (SIDE, length), (length, SIDE))
    return Case(sd_attention_allocated, tuple(np.zeros(shape, dtype) for shape in shapes), host_us)


row("ns-asd-float32-4096", lambda: _case(np.float32, 4096))
row("ns-asd-bfloat16-4096", lambda: _case(ml_dtypes.bfloat16, 4096))
row("ns-asd-bfloat16-5120", lambda: _case(ml_dtypes.bfloat16, 5120))
