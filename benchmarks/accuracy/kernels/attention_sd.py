"""Attention of a Stable Diffusion model (one head, s 4096), scheduled by the compiler.

`fused_self_attn_for_SD_small_head_size` of nki-samples, and what public rewrites made of it: trace `ac-sd_attention` of
ucb-bar/autocomp, whose code numbers are positions in the trace. All products are of bfloat16. The thresholds of
nki-samples (`ns-sd-*`) are asserted with a slack of 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.attention_steps import (
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
    transposed_in_psum,
)

SCALE = 0.125


@dataclass(frozen=True)
class Form:
    """What the rewrites change; the default is the kernel of nki-samples.

    loads: which tensors each of the loops over tiles before the main loop loads.  transposes_queries: q is [S, D].
    fused: one pass of the Scalar engine makes the weights, in bfloat16, and their sum.
    narrow: scores are kept in bfloat16.  rowwise: queries are on the partitions of the result.
    """

    loads: tuple[str, ...] = ("v", "q", "k")
    transposes_queries: bool = False
    fused: bool = False
    narrow: bool = False
    rowwise: bool = False


@nki.jit
def sd_attention(q: Any, k: Any, v: Any, form: Form) -> Any:
    """ns-sd-*, ac-sd_attention-0, -2, -4, -6: softmax(0.125 q k^T) v in tiles of 128 queries and 128 keys.

    Dimensions: q [D, S], or [S, D] if the form transposes it; k, v [S, D] -> [S, D].

    Pseudocode:
        load q^T (scaled), k^T and v in tiles of 128, converted to bfloat16
        for each tile of queries:
            scores [128, S], copied out of PSUM tile by tile, with a maximum for each; then the maximum of those
            weights = exp(scores - maximum), their sum, its reciprocal
            transpose the weights tile by tile; multiply by v; divide; store
    """
    length = k.shape[0]
    out = nl.ndarray(k.shape, dtype=k.dtype, buffer=nl.shared_hbm)
    tensors = {"q": q, "k": k, "v": v}
    tiles: dict[str, list[Any]] = {"q": [], "k": [], "v": []}
    for names in form.loads:
        for tile in range(length // SIDE):
            for name in names:
                tiles[name].append(load_tile(name, tensors[name], piece(tile), form))
    for tile in range(length // SIDE):
        scores, lowest = score(tiles["q"][tile], tiles["k"], k.dtype, form)
        weigh = weigh_fused if form.fused else weigh_apart
        weights, total = weigh(scores, lowest, k.dtype)
        inverse = in_sbuf(total.shape, k.dtype)
        nisa.reciprocal(dst=inverse, data=total)
        store = store_by_row if form.rowwise else store_by_column
        store(out[piece(tile), :], weights, inverse, tiles["v"])
    return out


def load_tile(name: str, tensor: Any, rows: slice, form: Form) -> Any:
    """A tile in bfloat16: q^T [D, 128] with the scale in it, k^T [D, 128] or v [128, D]."""
    if name == "v":
        return load(tensor[rows, :], nl.bfloat16)
    if name == "k":
        return load_transposed(tensor[rows, :], nl.bfloat16)
    if form.transposes_queries:
        tile = load_transposed(tensor[rows, :], nl.bfloat16)
    else:
        tile = load(tensor[:, rows], nl.bfloat16)
    scaled = in_sbuf(tile.shape, nl.bfloat16)
    nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=SCALE)
    return scaled


def score(query: Any, keys: list[Any], dtype: Any, form: Form) -> tuple[Any, Any]:
    """scores[128, S] in SBUF and lowest[128, 1] = -row maximum, through a column for each tile of keys."""
    scores = in_sbuf((SIDE, len(keys) * SIDE), nl.bfloat16 if form.narrow else dtype)
    low = in_sbuf((SIDE, len(keys)), dtype)
    for tile in range(len(keys)):
        part = scores[:, piece(tile)]
        nisa.tensor_copy(dst=part, src=product(query, keys[tile]))
        nisa.tensor_reduce(dst=low[:, tile : tile + 1], op=nl.maximum, data=part, axis=1, negate=True)
    return scores, reduced(nl.minimum, low, dtype)


def weigh_apart(scores: Any, lowest: Any, dtype: Any) -> tuple[Any, Any]:
    """weights[128, S] in bfloat16 and total[128, 1]: exponentials, their sum, a conversion, one pass each."""
    weights = in_sbuf(scores.shape, scores.dtype)
    nisa.activation(dst=weights, op=nl.exp, data=scores, bias=lowest)
    total = reduced(nl.add, weights, dtype)
    return copied(weights, nl.bfloat16), total


def weigh_fused(scores: Any, lowest: Any, dtype: Any) -> tuple[Any, Any]:
    """The same in one pass of the Scalar engine."""
    weights, total = in_sbuf(scores.shape, nl.bfloat16), in_sbuf((SIDE, 1), dtype)
    nisa.memset(dst=total, value=0.0)
    nisa.activation(
        dst=weights,
        op=nl.exp,
        data=scores,
        bias=lowest,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    return weights, total


def transposed_tiles(weights: Any) -> list[Any]:
    """The weights [128, S] as tiles [128 keys, 128 queries], all of them before they are used."""
    return [transposed(weights[:, piece(tile)]) for tile in range(weights.shape[1] // SIDE)]


def store_by_column(out: Any, weights: Any, inverse: Any, values: list[Any]) -> None:
    """out[128, D] = the transpose of (v^T weights^T) / total: the divisor is spread over D columns and transposed."""
    depth = values[0].shape[1]
    divisor = in_sbuf((SIDE, depth), inverse.dtype)
    nisa.tensor_copy(dst=divisor, src=inverse.broadcast(1, depth))
    columns = in_psum((depth, SIDE))
    for stationary, moving in zip(values, transposed_tiles(weights)):
        nisa.nc_matmul(dst=columns, stationary=stationary, moving=moving)
    result = copied(columns, out.dtype)
    nisa.tensor_tensor(dst=result, data1=result, data2=transposed_in_psum(divisor), op=nl.multiply)
    nisa.dma_copy(dst=out.permute((1, 0)), src=result)


def store_by_row(out: Any, weights: Any, inverse: Any, values: list[Any]) -> None:
    """out[128, D] = (weights v) / total, in rows as they are stored."""
    rows = in_psum((SIDE, values[0].shape[1]))
    for stationary, moving in zip(transposed_tiles(weights), values):
        nisa.nc_matmul(dst=rows, stationary=stationary, moving=moving)
    result = in_sbuf(rows.shape, out.dtype)
    nisa.tensor_scalar(dst=result, data=rows, op0=nl.multiply, operand0=inverse)
    nisa.dma_copy(dst=out, src=result)


# ---- the rows -----------------------------------------------------------------------------------------------------

LENGTH = 4096


def _sample(dtype: Any, depth: int) -> Case:
    shapes = ((depth, LENGTH), (LENGTH, depth), (LENGTH, depth))
    return Case(sd_attention, (*(np.zeros(shape, dtype) for shape in shapes), Form()), host_us)


def _rewrite(*loads: str, **changes: bool) -> Case:
    tensors = (np.zeros((LENGTH, 64), np.float32) for _ in range(3))
    return Case(sd_attention, (*tensors, Form(loads, transposes_queries=True, **changes)), host_us)


row("ns-sd-float32", lambda: _sample(np.float32, 128))
row("ns-sd-bfloat16", lambda: _sample(ml_dtypes.bfloat16, 128))
row("ns-sd-float16", lambda: _sample(np.float16, 64))
row("ac-sd_attention-0", lambda: _rewrite("v", "q", "k"))
row("ac-sd_attention-2", lambda: _rewrite("v", "qk", fused=True))
row("ac-sd_attention-4", lambda: _rewrite("vqk", fused=True, narrow=True))
row("ac-sd_attention-6", lambda: _rewrite("vqk", fused=True, narrow=True, rowwise=True))
