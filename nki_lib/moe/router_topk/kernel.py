"""The k experts of every token, their weights, and the sums that the losses of a router are made of.

Letters:
  T  tokens    E  experts, up to 512    k  experts of a token, n of them up to whole eights    G  groups of experts
  m  partitions of a block    g  tokens in each of them
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.lines import Lines
from nki_lib.moe.router_topk.limiting import keep_best_groups
from nki_lib.moe.router_topk.losses import LossSums
from nki_lib.moe.router_topk.scoring import Softmax, guarded_keys, sigmoids
from nki_lib.reduction.topk.selection import choose

# Of a block in one partition: the Tensor engine adds up one block while the next one is chosen from.
TOKENS = 8
TINY = 1e-20  # added to the sum of sigmoids, as DeepSeek-V3 does


@nki.jit
def router_topk(
    logits: Any,
    bias: Any,
    valid: Any,
    k: int,
    score: str,
    normalize: bool,
    groups: int,
    topk_groups: int,
    scale: float,
) -> Any:
    """The k best experts of every token in order, the first of equal ones first, and their weights, in float32.

    Dimensions: logits [T, E]; bias [E] float32 or None, added to sigmoids for the choice; valid [T] float32, 1 for
    tokens that count in the losses, or None without losses -> weights [T, k] in the dtype of logits, indices [T, k]
    int32; with valid also the tokens of each expert [1, E], sums of its probabilities [1, E], and the sum of
    logsumexp(logits)^2 [1, 1].

    Pseudocode:
        for each block of tokens:
            load it; scores; keys = logits, or sigmoids + bias; of groups keep the best ones
            for each eight of k: find the eight largest keys, where they stand, and take them away
            weights = exp(best - max), or the sigmoids there, over their sum or that of all; times scale
            the PE array adds up, over tokens: what has been taken away, probabilities, squares
    """
    weights = nl.ndarray((logits.shape[0], k), dtype=logits.dtype, buffer=nl.shared_hbm)
    indices = nl.ndarray((logits.shape[0], k), dtype=nl.int32, buffer=nl.shared_hbm)
    lines, losses = Lines(logits), None
    if valid is not None:
        losses = LossSums(lines.width, valid)
    shift = None if bias is None else bias_of_all(bias)
    for block, tile in lines.loaded(lines.blocks(most=TOKENS)):
        m, g, experts = tile.shape
        whole = score == "softmax" and not normalize
        powers = (
            Softmax(tile, losses is not None or whole) if score != "sigmoid" or losses is not None else None
        )
        scores, totals = sigmoids(tile) if score == "sigmoid" else (None, None)
        keys = guarded_keys(tile if scores is None else scores, shift)
        if groups > 1:
            keep_best_groups(keys[:, :, :experts], groups, topk_groups)
        raw = nl.ndarray((m, g, k), dtype=nl.float32, buffer=nl.sbuf)
        sums = nl.ndarray((m, g), dtype=nl.float32, buffer=nl.sbuf)
        found = nl.ndarray((m, g, k), dtype=nl.int32, buffer=nl.sbuf)
        for i in range(g):
            best, places = choose(keys[:, i, :], k)
            nisa.tensor_copy(dst=found[:, i, :], src=places[:, :k])
            if scores is None:
                powers.of(raw[:, i, :], best[:, :k], sums[:, i : i + 1], i)
            else:
                nisa.nc_n_gather(dst=raw[:, i, :], data=scores[:, i, :], indices=places[:, :k])
        if scores is not None:
            nisa.tensor_reduce(dst=sums, data=raw, op=nl.add, axis=2)
            nisa.tensor_scalar(dst=sums, data=sums, op0=nl.add, operand0=TINY)
        divisors = powers.totals if whole else None if score == "sigmoid" and not normalize else sums
        Lines(weights).store(scaled(raw, divisors, scale, weights.dtype), block)
        Lines(indices).store(found, block)
        if losses is not None:
            losses.add(block, keys[:, :, :experts], powers, scores, totals)
    if losses is None:
        return weights, indices
    return weights, indices, *losses.results()


def bias_of_all(bias: Any) -> Any:
    """The biases in every partition. Dimensions: [E] -> [128, E]."""
    side = nl.tile_size.pmax
    tile = nl.ndarray((side, bias.shape[0]), dtype=bias.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=bias.expand_dim(0).broadcast(0, side))
    return tile


def scaled(raw: Any, divisors: Any, scale: float, dtype: Any) -> Any:
    """raw * scale / divisors. Dimensions: raw [m, g, k], divisors [m, g] or None -> [m, g, k] in `dtype`."""
    m, g, k = raw.shape
    result = nl.ndarray(raw.shape, dtype=dtype, buffer=nl.sbuf)
    if divisors is None:
        nisa.tensor_scalar(dst=result, data=raw, op0=nl.multiply, operand0=scale)
        return result
    factors = nl.ndarray((m, g), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=factors, data=divisors)
    if scale != 1.0:
        nisa.tensor_scalar(dst=factors, data=factors, op0=nl.multiply, operand0=scale)
    nisa.tensor_tensor(dst=result, data1=raw, data2=factors.expand_dim(2).broadcast(2, k), op=nl.multiply)
    return result
