"""The selective scan of Mamba in float32: rewrites found by autocomp (trn1) and by kda-for-trainium (trn2).

Letters: c = 128 channels of a tile, s numbers of the sequence, n states. For every state,
    state[i] = exp(a delta[i]) state[i - 1] + delta[i] u[i] b[i];    out[i] += state[i] c[i]
A row of b or c is needed on all partitions. The originals write `broadcast_to`, which is a product with a row of ones
(fused_mamba.rst: "a separate instruction on TensorE"). Where the result fits in one PSUM bank, the Vector engine reads
it there; wider ones are copied to SBUF by the Scalar engine, bank by bank. The counters of the kda traces say so: the
Scalar engine has 0.4 us for each state besides streaming its exponential at widths of 256 and 512, which is the start
of that and the copy of a column, but 2.2 us at 896, and the Vector engine has no time for copies at any width.
Where sums go to PSUM (`+=` on a tile that lives there) they do so here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.samples_steps import BANK, PARTITIONS, bank, copied, load, new, pair, zeros


def row_of_ones() -> Any:
    """The stationary operand that repeats a row on all partitions."""
    ones = new((1, PARTITIONS))
    nisa.memset(dst=ones, value=1.0)
    return ones


def repeated(tile_row: Any, ones: Any) -> Any:
    """A row [1, s] on all partitions: one product, left in PSUM, or one a bank, copied to SBUF."""
    width = tile_row.shape[1]
    if width <= BANK:
        return product_with_ones(tile_row, ones)
    tile = new((PARTITIONS, width))
    for start in range(0, width, BANK):
        columns = slice(start, min(start + BANK, width))
        nisa.activation(dst=tile[:, columns], op=nl.copy, data=product_with_ones(tile_row[:, columns], ones))
    return tile


def product_with_ones(tile_row: Any, ones: Any) -> Any:
    """A row of up to a bank on all partitions, in PSUM."""
    tile = bank(PARTITIONS, tile_row.shape[1])
    nisa.nc_matmul(dst=tile, stationary=ones, moving=tile_row)
    return tile


def decay(delta: Any, a: Any) -> Any:
    """exp(delta a): delta [c, s], a [c, 1]."""
    result = new(delta.shape)
    nisa.activation(dst=result, op=nl.exp, data=delta, scale=a)
    return result


def scan(factors: Any, terms: Any, initial: Any) -> Any:
    """state[i] = factors[i] state[i - 1] + terms[i]."""
    result = new(factors.shape)
    nisa.tensor_tensor_scan(
        dst=result, data0=factors, data1=terms, initial=initial, op0=nl.multiply, op1=nl.add
    )
    return result


def add_to(total: Any, tile: Any) -> None:
    """total += tile."""
    nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)


# ---- autocomp: b1, c256, s2048, n16 on trn1 --------------------------------------------------------------------------


@nki.jit
def states_outside(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """ac-mamba-1: states outside, channels inside; rows of b and c are loaded once a state, everything else anew.

    Dimensions: delta, u [C, s], a [C, n], b, c [n, s] -> [C, s]. All passes of the Vector engine are s wide.
    """
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = row_of_ones()
    tiles = [slice(start, start + PARTITIONS) for start in range(0, delta.shape[0], PARTITIONS)]
    totals = [zeros((PARTITIONS, delta.shape[1])) for _ in tiles]
    for state in range(a.shape[1]):
        b_row, c_row = load(b[state : state + 1, :]), load(c[state : state + 1, :])
        for channels, total in zip(tiles, totals):
            step = load(delta[channels, :])
            factors = decay(step, load(a[channels, state : state + 1]))
            product = pair(step, nl.multiply, load(u[channels, :]))
            terms = pair(product, nl.multiply, repeated(b_row, ones))
            states = scan(factors, terms, 0.0)
            add_to(total, pair(states, nl.multiply, repeated(c_row, ones)))
    for channels, total in zip(tiles, totals):
        nisa.dma_copy(dst=out[channels, :], src=total)
    return out


@nki.jit
def channels_outside(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """ac-mamba-3: channels outside; delta, u and a are loaded once a tile, delta u is computed once.

    Dimensions as above. Rows of b and c are loaded once for every tile and state.
    """
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = row_of_ones()
    for start in range(0, delta.shape[0], PARTITIONS):
        channels = slice(start, start + PARTITIONS)
        step = load(delta[channels, :])
        product = pair(step, nl.multiply, load(u[channels, :]))
        rates = load(a[channels, :])
        total = zeros(step.shape)
        for state in range(a.shape[1]):
            factors = decay(step, rates[:, state : state + 1])
            b_row, c_row = load(b[state : state + 1, :]), load(c[state : state + 1, :])
            terms = pair(product, nl.multiply, repeated(b_row, ones))
            states = scan(factors, terms, 0.0)
            add_to(total, pair(states, nl.multiply, repeated(c_row, ones)))
        nisa.dma_copy(dst=out[channels, :], src=total)
    return out


@nki.jit
def chunks_in_psum(delta: Any, u: Any, a: Any, b: Any, c: Any, chunk_loads: bool) -> Any:
    """ac-mamba-5 and, with `chunk_loads`, ac-mamba-7: one PSUM bank of the sequence at a time, summed up in PSUM.

    Dimensions as above. The last column of every scan is carried to the next chunk. Rows of b and c alternate between
    two buffers each and are loaded one state ahead. delta and u come in once a tile (5) or chunk by chunk (7).
    """
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = row_of_ones()
    for start in range(0, delta.shape[0], PARTITIONS):
        channels = slice(start, start + PARTITIONS)
        whole = None if chunk_loads else step_and_product(delta[channels, :], u[channels, :])
        rates, carry = load(a[channels, :]), zeros((PARTITIONS, a.shape[1]))
        for first in range(0, delta.shape[1], BANK):
            columns = slice(first, first + BANK)
            if whole is None:
                step, product = step_and_product(delta[channels, columns], u[channels, columns])
            else:
                step, product = whole[0][:, columns], whole[1][:, columns]
            total = sum_of_states(step, product, rates, carry, (b[:, columns], c[:, columns]), ones)
            nisa.dma_copy(dst=out[channels, columns], src=copied(total))
    return out


def step_and_product(delta: Any, u: Any) -> tuple[Any, Any]:
    """delta and delta u in SBUF."""
    step = load(delta)
    return step, pair(step, nl.multiply, load(u))


def sum_of_states(step: Any, product: Any, rates: Any, carry: Any, rows: tuple[Any, Any], ones: Any) -> Any:
    """One chunk of the result, in PSUM. rows: b and c [n, s] in HBM; carry [c, n] is read and renewed."""
    width, states = step.shape[1], carry.shape[1]
    total = bank(PARTITIONS, width)
    nisa.memset(dst=total, value=0.0)
    buffers = [[new((1, width)) for _ in rows] for _ in range(2)]
    fill(buffers[0], rows, 0)
    for state in range(states):
        factors = decay(step, rates[:, state : state + 1])
        if state + 1 < states:
            fill(buffers[(state + 1) % 2], rows, state + 1)
        b_row, c_row = buffers[state % 2]
        terms = pair(product, nl.multiply, repeated(b_row, ones))
        result = scan(factors, terms, carry[:, state : state + 1])
        nisa.tensor_copy(dst=carry[:, state : state + 1], src=result[:, width - 1 :])
        add_to(total, pair(result, nl.multiply, repeated(c_row, ones)))
    return total


def fill(buffers: list[Any], rows: tuple[Any, Any], state: int) -> None:
    """Load a state's rows of b and c."""
    for buffer, source in zip(buffers, rows):
        nisa.dma_copy(dst=buffer, src=source[state : state + 1, :])


# ---- kda-for-trainium: c256, s7168, n16 on trn2 ----------------------------------------------------------------------


@nki.jit
def sequence_tiles(delta: Any, u: Any, a: Any, b: Any, c: Any, width: int) -> Any:
    """kda-mamba-mamba_v2, _v2_w256 and _v2_w896: `width` of the sequence outside, then channels, then states.

    Dimensions as above. Columns of a and rows of b and c are loaded for every tile and state; delta u is computed for
    every state again, as the original does.
    """
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = row_of_ones()
    tiles = [slice(start, start + PARTITIONS) for start in range(0, delta.shape[0], PARTITIONS)]
    carries = [zeros((PARTITIONS, a.shape[1])) for _ in tiles]
    for first in range(0, delta.shape[1], width):
        columns = slice(first, first + width)
        totals = [zeros((PARTITIONS, width)) for _ in tiles]
        for channels, carry, total in zip(tiles, carries, totals):
            step, other = load(delta[channels, columns]), load(u[channels, columns])
            for state in range(a.shape[1]):
                factors = decay(step, load(a[channels, state : state + 1]))
                b_row = load(b[state : state + 1, columns])
                product = pair(step, nl.multiply, other)
                terms = pair(product, nl.multiply, repeated(b_row, ones))
                states = carried_scan(factors, terms, carry, state, columns, delta.shape[1])
                c_row = load(c[state : state + 1, columns])
                add_to(total, pair(states, nl.multiply, repeated(c_row, ones)))
        for channels, total in zip(tiles, totals):
            nisa.dma_copy(dst=out[channels, columns], src=total)
    return out


def carried_scan(factors: Any, terms: Any, carry: Any, state: int, columns: slice, length: int) -> Any:
    """The scan of one tile of the sequence, from 0 or where the tile before ended; its last column is kept."""
    column = carry[:, state : state + 1]
    result = scan(factors, terms, column if columns.start else 0.0)
    if columns.stop < length:
        nisa.tensor_copy(dst=column, src=result[:, result.shape[1] - 1 :])
    return result


@nki.jit
def shared_rows(delta: Any, u: Any, a: Any, b: Any, c: Any, width: int) -> Any:
    """kda-mamba-mamba_v4: states before channels, so that b and c are repeated once for both tiles, and kept in SBUF.

    Dimensions as above. delta u is computed once a tile of the sequence. The original names SBUF tiles for the
    repeated rows, which takes a copy out of PSUM each.
    """
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = row_of_ones()
    tiles = [slice(start, start + PARTITIONS) for start in range(0, delta.shape[0], PARTITIONS)]
    carries = [zeros((PARTITIONS, a.shape[1])) for _ in tiles]
    for first in range(0, delta.shape[1], width):
        columns = slice(first, first + width)
        totals = [zeros((PARTITIONS, width)) for _ in tiles]
        steps = [step_and_product(delta[channels, columns], u[channels, columns]) for channels in tiles]
        for state in range(a.shape[1]):
            b_row, c_row = load(b[state : state + 1, columns]), load(c[state : state + 1, columns])
            b_tile, c_tile = copied(repeated(b_row, ones)), copied(repeated(c_row, ones))
            for channels, carry, total, (step, product) in zip(tiles, carries, totals, steps):
                factors = decay(step, load(a[channels, state : state + 1]))
                terms = pair(product, nl.multiply, b_tile)
                states = carried_scan(factors, terms, carry, state, columns, delta.shape[1])
                add_to(total, pair(states, nl.multiply, c_tile))
        for channels, total in zip(tiles, totals):
            nisa.dma_copy(dst=out[channels, columns], src=total)
    return out


def case(kernel: Any, length: int, *options: Any) -> Case:
    """256 channels and 16 states over a sequence."""
    wide, narrow = np.zeros((256, length), np.float32), np.zeros((16, length), np.float32)
    rates = np.zeros((256, 16), np.float32)
    return Case(kernel, (wide, wide, rates, narrow, narrow, *options), host_us)


row("ac-mamba-1", lambda: case(states_outside, 2048))
row("ac-mamba-3", lambda: case(channels_outside, 2048))
row("ac-mamba-5", lambda: case(chunks_in_psum, 2048, False))
row("ac-mamba-7", lambda: case(chunks_in_psum, 2048, True))
row("kda-mamba-mamba_v2", lambda: case(sequence_tiles, 7168, 512))
row("kda-mamba-mamba_v2_w256", lambda: case(sequence_tiles, 7168, 256))
row("kda-mamba-mamba_v2_w896", lambda: case(sequence_tiles, 7168, 896))
row("kda-mamba-mamba_v4", lambda: case(shared_rows, 7168, 512))
