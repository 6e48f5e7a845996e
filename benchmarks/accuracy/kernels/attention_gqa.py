"""Grouped-query attention in float32, 16 query heads on 8 key heads (trn2): trace `kda-gqa_full` of kda-for-trainium.

All variants keep the keys of a head transposed and its values in SBUF, build whole rows of scores, transpose all
weights of a tile before they are multiplied with v, and are scheduled by the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    piece,
    reduced,
)


@dataclass(frozen=True)
class Form:
    """What the variants change.

    batch: tiles of queries whose weights are transposed before any of them is multiplied.
    scales_scores: the scale is a pass over all scores (later part of the exponential).
    divides_weights: weights are normalised before they are used (later the output).
    splits: products of scores take two bfloat16 limbs of each operand.
    from_psum: exponentials are taken from PSUM, bank by bank, without a maximum.
    """

    batch: int = 1
    scales_scores: bool = False
    divides_weights: bool = False
    splits: bool = False
    from_psum: bool = False


@nki.jit
def gqa(q: Any, k: Any, v: Any, form: Form) -> Any:
    """kda-gqa_full-*: softmax(q k^T / sqrt(128)) v for every query head, head by head, tile by tile.

    Dimensions: q [S/128, 128, H, 128], k [S/512, 4, 128, G, 128], v [S/128, 128, 128 G] for H = 2 G heads ->
    [G, 2, S/128, 128, 128].
    """
    tiles, groups = q.shape[0], k.shape[3]
    repeats = q.shape[2] // groups
    out = nl.ndarray((groups, repeats, tiles, SIDE, SIDE), dtype=q.dtype, buffer=nl.shared_hbm)
    identity = load(nl.shared_constant(np.identity(SIDE, dtype=np.float32)))
    for group in range(groups):
        keys = load_keys(k[:, :, :, group, :], identity)
        limbs = split(keys) if form.splits else (keys,)
        values = in_sbuf((SIDE, tiles * SIDE))
        for tile in range(tiles):
            nisa.dma_copy(dst=values[:, piece(tile)], src=v[tile, :, piece(group)])
        for repeat in range(repeats):
            head = q[:, :, group * repeats + repeat, :]
            for first in range(0, tiles, form.batch):
                bank = in_sbuf((SIDE, form.batch * tiles * SIDE))
                inverses = in_sbuf((SIDE, form.batch))
                chosen = range(form.batch)
                parts = [bank[:, piece(member, tiles * SIDE)] for member in chosen]
                for member in chosen:
                    query = turn(load(head[first + member]), identity)
                    build(query, limbs, parts[member], inverses[:, member : member + 1], identity, form)
                for member in chosen:
                    rows = stream(parts[member], values, inverses[:, member : member + 1], form)
                    nisa.dma_copy(dst=out[group, repeat, first + member], src=rows)
    return out


def load_keys(k: Any, identity: Any) -> Any:
    """keys[128, S] in SBUF, transposed tile by tile. Dimensions: k [S/512, 4, 128, 128]."""
    keys = in_sbuf((SIDE, k.shape[0] * BANK))
    for chunk in range(k.shape[0]):
        for part in range(k.shape[1]):
            turn(load(k[chunk, part]), identity, keys[:, piece(chunk * k.shape[1] + part)])
    return keys


def turn(tile: Any, identity: Any, dst: Any = None) -> Any:
    """The transpose of a float32 tile: a product with the identity in transpose mode, and a copy out of PSUM."""
    in_bank = in_psum((tile.shape[1], tile.shape[0]))
    nisa.nc_matmul(
        dst=in_bank,
        stationary=tile,
        moving=identity,
        is_transpose=True,
        is_moving_onezero=True,
        accumulate=False,
    )
    result = in_sbuf(in_bank.shape) if dst is None else dst
    nisa.tensor_copy(dst=result, src=in_bank)
    return result


def split(tile: Any) -> tuple[Any, Any]:
    """Two bfloat16 limbs: the rounded tile, and what was lost."""
    high, low = copied(tile, nl.bfloat16), in_sbuf(tile.shape, nl.bfloat16)
    nisa.tensor_tensor(dst=low, data1=tile, data2=high, op=nl.subtract)
    return high, low


def build(query: Any, keys: tuple[Any, ...], bank: Any, inverse: Any, identity: Any, form: Form) -> None:
    """bank[128, S]: the weights of a tile of queries, transposed tile by tile; inverse[128, 1]: 1 / their sum."""
    queries = split(query) if form.splits else (query,)
    weigh = weigh_banks if form.from_psum else weigh_rows
    weights = weigh(queries, keys, 1 / float(np.sqrt(SIDE)), form)
    nisa.reciprocal(dst=inverse, data=reduced(nl.add, weights))
    if form.divides_weights:
        normal = in_sbuf(weights.shape)
        nisa.tensor_scalar(dst=normal, data=weights, op0=nl.multiply, operand0=inverse)
        weights = normal
    for tile in range(bank.shape[1] // SIDE):
        turn(weights[:, piece(tile)], identity, bank[:, piece(tile)])


def multiply_scores(queries: tuple[Any, ...], keys: tuple[Any, ...], chunk: int) -> Any:
    """scores[128, 512] in PSUM; of limbs high high + high low + low high."""
    scores, columns = in_psum((SIDE, BANK)), piece(chunk, BANK)
    nisa.nc_matmul(dst=scores, stationary=queries[0], moving=keys[0][:, columns])
    if len(queries) > 1:
        nisa.nc_matmul(dst=scores, stationary=queries[0], moving=keys[1][:, columns])
        nisa.nc_matmul(dst=scores, stationary=queries[1], moving=keys[0][:, columns])
    return scores


def weigh_rows(queries: tuple[Any, ...], keys: tuple[Any, ...], scale: float, form: Form) -> Any:
    """weights[128, S] = exp(scale (scores - maximum)) after all scores of the row have been copied out of PSUM."""
    scores = in_sbuf(keys[0].shape)
    for chunk in range(scores.shape[1] // BANK):
        nisa.tensor_copy(dst=scores[:, piece(chunk, BANK)], src=multiply_scores(queries, keys, chunk))
    if form.scales_scores:
        nisa.tensor_scalar(dst=scores, data=scores, op0=nl.multiply, operand0=scale)
        low, scale = reduced(nl.maximum, scores, negate=True), 1.0
    else:
        low = in_sbuf((SIDE, 1))
        unscaled = reduced(nl.maximum, scores, negate=True)
        nisa.tensor_scalar(dst=low, data=unscaled, op0=nl.multiply, operand0=scale)
    weights = in_sbuf(scores.shape)
    nisa.activation(dst=weights, op=nl.exp, data=scores, bias=low, scale=scale)
    return weights


def weigh_banks(queries: tuple[Any, ...], keys: tuple[Any, ...], scale: float, form: Form) -> Any:
    """weights[128, S] = exp(scale scores), read from PSUM bank by bank."""
    weights = in_sbuf(keys[0].shape)
    for chunk in range(weights.shape[1] // BANK):
        scores = multiply_scores(queries, keys, chunk)
        nisa.activation(dst=weights[:, piece(chunk, BANK)], op=nl.exp, data=scores, scale=scale)
    return weights


def stream(bank: Any, values: Any, inverse: Any, form: Form) -> Any:
    """rows[128, 128] in SBUF = weights v, divided by the sum unless the weights were."""
    rows, result = in_psum((SIDE, SIDE)), in_sbuf((SIDE, SIDE))
    for tile in range(values.shape[1] // SIDE):
        nisa.nc_matmul(dst=rows, stationary=bank[:, piece(tile)], moving=values[:, piece(tile)])
    if form.divides_weights:
        nisa.tensor_copy(dst=result, src=rows)
    else:
        nisa.tensor_scalar(dst=result, data=rows, op0=nl.multiply, operand0=inverse)
    return result


# ---- the rows -----------------------------------------------------------------------------------------------------


def _case(form: Form) -> Case:
    shapes = ((32, 128, 16, 128), (8, 4, 128, 8, 128), (32, 128, 1024))
    return Case(gqa, (*(np.zeros(shape, np.float32) for shape in shapes), form), host_us)


_NAME = "kda-gqa_full-gqa_full_"
row(f"{_NAME}v2_twophase", lambda: _case(Form(scales_scores=True, divides_weights=True)))
row(f"{_NAME}v3b_defernorm", lambda: _case(Form(scales_scores=True)))
row(f"{_NAME}v4_msub1", lambda: _case(Form()))
row(f"{_NAME}v4_msub4", lambda: _case(Form(batch=4)))
row(f"{_NAME}v5_scoresplit", lambda: _case(Form(batch=2, splits=True)))
row(f"{_NAME}v7a_exp_from_psum", lambda: _case(Form(batch=2, splits=True, from_psum=True)))
row(f"{_NAME}v7a_msub4", lambda: _case(Form(batch=4, splits=True, from_psum=True)))
