"""What nki_perf_guide.rst and fused_mamba.rst teach, as kernels with slow and fast variants for `test_lessons.py`.

The last argument chooses the variant; the results are the same. Loops are Python's, so they unroll, and the compiler's
schedule is free to move everything, as it is for the published kernels.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.kernels.samples_steps import bank, copied, load, new, pair, zeros
from benchmarks.accuracy.kernels.tutorial_mamba import fill, spread
from benchmarks.accuracy.kernels.tutorial_matmul import store_sums

TILE = 128
WIDTH = 512
FOLDS = (nl.add, nl.maximum, nl.minimum)


def output(*shape: int, dtype: Any = nl.float32) -> Any:
    """A tensor in HBM to return."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def pieces(count: int, width: int) -> list[slice]:
    """`count` columns, `width` at a time."""
    return [slice(start, start + width) for start in range(0, count, width)]


def applied(op: Any, data: Any, **more: Any) -> Any:
    """op(data) as a new tile in SBUF, on the Scalar engine."""
    tile = new(data.shape, data.dtype)
    nisa.activation(dst=tile, op=op, data=data, **more)
    return tile


def folded(op: Any, data: Any) -> Any:
    """The rows of a tile folded to a new column in SBUF, on the Vector engine."""
    column = new((data.shape[0], 1))
    nisa.tensor_reduce(dst=column, op=op, data=data, axis=1)
    return column


def turned(tile: Any) -> Any:
    """The transpose of a tile in PSUM, by the Tensor engine."""
    result = nl.ndarray((tile.shape[1], tile.shape[0]), dtype=tile.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=result, data=tile, engine=nisa.engine.tensor)
    return result


@nki.jit
def row_folds(x: Any, kept: bool) -> Any:
    """Sum, largest and smallest of the rows of x [t, 128, s] -> [3, t, 128, 1]; a tile is loaded once, or thrice."""
    out = output(len(FOLDS), *x.shape[:2], 1)
    cases = [(i, j) for j in range(len(FOLDS)) for i in range(x.shape[0])]
    tiles = [load(x[i]) for i in range(x.shape[0])] if kept else []
    for i, j in sorted(cases) if kept else cases:
        nisa.dma_copy(dst=out[j, i], src=folded(FOLDS[j], tiles[i] if kept else load(x[i])))
    return out


@nki.jit
def squares_of_exp(x: Any, fused: bool) -> Any:
    """exp(x)^2 of x [t, 128, s]; between the two operators every tile stays in SBUF, or all go to HBM and back."""
    out = output(*x.shape)
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    for i in range(0 if fused else x.shape[0]):
        nisa.dma_copy(dst=between[i], src=applied(nl.exp, load(x[i])))
    for i in range(x.shape[0]):
        power = applied(nl.exp, load(x[i])) if fused else load(between[i])
        nisa.dma_copy(dst=out[i], src=pair(power, nl.multiply, power))
    return out


@nki.jit
def exp_plus_one(x: Any, loaded: int, computed: int) -> Any:
    """exp(x) + 1 of x [128, s], Scalar then Vector engine; `loaded` columns a DMA, `computed` an instruction."""
    out = output(*x.shape)
    tile, power, result = new(x.shape), new(x.shape), new(x.shape)
    for part in pieces(x.shape[1], loaded):
        nisa.dma_copy(dst=tile[:, part], src=x[:, part])
    for part in pieces(x.shape[1], computed):
        nisa.activation(dst=power[:, part], op=nl.exp, data=tile[:, part])
        nisa.tensor_scalar(dst=result[:, part], data=power[:, part], op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def scan(a: Any, b: Any, how: str) -> Any:
    """y[i] = a[i] y[i - 1] + b[i] along rows of [128, s]: "two" instructions for each i, "one", or one for "all"."""
    out = output(*a.shape)
    left, right, result = load(a), load(b), new(a.shape)
    if how == "all":
        nisa.tensor_tensor_scan(dst=result, data0=left, data1=right, initial=0.0, op0=nl.multiply, op1=nl.add)
    else:
        nisa.tensor_copy(dst=result[:, 0:1], src=right[:, 0:1])
    for i in range(1, a.shape[1] if how != "all" else 0):
        at, last, dst = slice(i, i + 1), result[:, i - 1 : i], result[:, i : i + 1]
        if how == "one":
            nisa.tensor_scalar(dst, left[:, at], nl.multiply, last, op1=nl.add, operand1=right[:, at])
        else:
            product = pair(left[:, at], nl.multiply, last)
            nisa.tensor_tensor(dst=dst, data1=product, data2=right[:, at], op=nl.add)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def sums_of_products(lhs_t: Any, rhs: Any, together: bool) -> Any:
    """Row sums of lhs_t[:, i].T @ rhs: lhs_t [128, t, 64], rhs [128, 512] -> [64, t], or [128, t/2] if `together`."""
    count, half = lhs_t.shape[1:]
    step = 2 if together else 1
    left, moving, result = load(lhs_t), load(rhs), new((step * half, count // step))
    for i in range(result.shape[1]):
        sums = bank(step * half, WIDTH)
        for j in range(step):
            part = sums[j * half : (j + 1) * half]
            nisa.nc_matmul(dst=part, stationary=left[:, step * i + j], moving=moving)
        nisa.tensor_reduce(dst=result[:, i : i + 1], op=nl.add, data=sums, axis=1)
    out = output(*result.shape)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def exp_of_line(x: Any, scale: Any, bias: Any, combined: bool) -> Any:
    """exp(scale x + bias) of x [t, 128, s], columns [128, 1], on the Scalar engine in one instruction or in three."""
    out = output(*x.shape)
    factor, term = load(scale), load(bias)
    for i in range(x.shape[0]):
        tile, last = load(x[i]), {"scale": factor, "bias": term} if combined else {}
        if not combined:
            tile = applied(nl.copy, applied(nl.copy, tile, scale=factor), bias=term)
        nisa.dma_copy(dst=out[i], src=applied(nl.exp, tile, **last))
    return out


@nki.jit
def vector_by_matrix(x: Any, w: Any, short_moving: bool) -> Any:
    """The vector x [128, k] times the matrix w [128, k, 128], k terms: the vector is stationary, or moving."""
    shape = (TILE, 1) if short_moving else (1, TILE)
    out, sums = output(*shape), bank(*shape)
    vector, matrix = load(x), load(w)
    for i in range(x.shape[1]):
        short_long = vector[:, i : i + 1], matrix[:, i]
        nisa.nc_matmul(sums, *(short_long[::-1] if short_moving else short_long))
    nisa.dma_copy(dst=out, src=copied(sums))
    return out


@nki.jit
def layer(x: Any, w: Any, fitting: bool) -> Any:
    """Sum of w[i] @ x for x [128, 512]; w [128, t, 128] holds each w[i] as [in, out], which fits, or as [out, in]."""
    out, sums = output(TILE, WIDTH), bank(TILE, WIDTH)
    moving, weights = load(x), load(w)
    for i in range(w.shape[1]):
        tile = weights[:, i] if fitting else copied(turned(weights[:, i]))
        nisa.nc_matmul(dst=sums, stationary=tile, moving=moving)
    nisa.dma_copy(dst=out, src=copied(sums))
    return out


@nki.jit
def layer_statistics(x: Any, w: Any, swapped: bool) -> Any:
    """bn_stats over the 512 features of x.T @ w: x [128, s], w [128, 512] -> [s, 6]; x is stationary if `swapped`."""
    out = output(x.shape[1], 6)
    tokens, weights = load(x), load(w)
    for some in pieces(x.shape[1], WIDTH):
        features = [] if swapped else [copied(sums) for sums in products(weights, tokens[:, some])]
        for at in pieces(WIDTH, TILE):
            rows, result = slice(some.start + at.start, some.start + at.stop), bank(TILE, WIDTH)
            if swapped:
                nisa.nc_matmul(dst=result, stationary=tokens[:, rows], moving=weights)
            for part, tile in zip(pieces(WIDTH, TILE), features):
                nisa.nc_transpose(dst=result[:, part], data=tile[:, at], engine=nisa.engine.tensor)
            statistics = new((TILE, 6))
            nisa.bn_stats(dst=statistics, data=result)
            nisa.dma_copy(dst=out[rows], src=statistics)
    return out


def products(weights: Any, tokens: Any) -> list[Any]:
    """weights.T @ tokens, 128 rows to a PSUM bank."""
    banks = [bank(TILE, tokens.shape[1]) for _ in range(0, weights.shape[1], TILE)]
    for part, sums in zip(pieces(weights.shape[1], TILE), banks):
        nisa.nc_matmul(dst=sums, stationary=weights[:, part], moving=tokens)
    return banks


@nki.jit
def normalized_layers(x: Any, first: Any, second: Any, by_product: bool) -> Any:
    """Linear, RMSNorm, linear: x [128, s], first [128, 512], second [128, 4, 128] -> [128, s] of bfloat16.

    by_product: features stay on the partitions, and a product with ones adds their squares up, on every partition.
    Otherwise tokens lie there, the Vector engine adds, and each tile is transposed for the second layer.
    """
    out = output(*x.shape, dtype=x.dtype)
    left, right, ones = load(first), load(second), new((TILE, TILE), x.dtype)
    nisa.memset(dst=ones, value=1.0)
    for part in pieces(x.shape[1], WIDTH):
        tokens, sums, result = load(x[:, part]), bank(TILE, WIDTH), bank(TILE, WIDTH)
        tiles = [new((TILE, WIDTH), x.dtype) for _ in range(second.shape[1])]
        if by_product:
            features = products(left, tokens)
            for feature in features:
                square = new((TILE, WIDTH), x.dtype)
                nisa.activation(dst=square, op=nl.square, data=feature)
                nisa.nc_matmul(dst=sums, stationary=ones, moving=square)
            inverse = new((TILE, WIDTH))
            nisa.activation(dst=inverse, op=nl.rsqrt, data=sums)
            for tile, feature in zip(tiles, features):
                nisa.tensor_tensor(tile, feature, inverse, op=nl.multiply)
        else:
            for at in pieces(WIDTH, TILE):
                token_major(left, tokens[:, at], [tile[:, at] for tile in tiles])
        for i, tile in enumerate(tiles):
            nisa.nc_matmul(dst=result, stationary=right[:, i], moving=tile)
        store_sums(out[:, part], result)
    return out


def token_major(weights: Any, tokens: Any, tiles: list[Any]) -> None:
    """One layer with 128 tokens on the partitions, each normalised; transposed into 128 columns of every tile."""
    sums = bank(TILE, WIDTH)
    nisa.nc_matmul(dst=sums, stationary=tokens, moving=weights)
    square, scaled = new((TILE, WIDTH)), new((TILE, WIDTH), tokens.dtype)
    nisa.activation(dst=square, op=nl.square, data=sums)
    inverse = applied(nl.rsqrt, folded(nl.add, square))
    nisa.tensor_scalar(dst=scaled, data=sums, op0=nl.multiply, operand0=inverse)
    for part, tile in zip(pieces(WIDTH, TILE), tiles):
        nisa.tensor_copy(dst=tile, src=turned(scaled[:, part]))


@nki.jit
def copy_in_pieces(x: Any, rows: int, columns: int) -> Any:
    """x to HBM by way of SBUF, a window of rows x columns with each DMA."""
    out = output(*x.shape)
    for down in pieces(x.shape[0], rows):
        for across in pieces(x.shape[1], columns):
            nisa.dma_copy(dst=out[down, across], src=load(x[down, across]))
    return out


@nki.jit
def transposed(x: Any, by_product: bool) -> Any:
    """x [s, 128] to a tile [128, s] and out, transposed by the DMA or by the Tensor engine."""
    out = output(x.shape[1], x.shape[0], dtype=x.dtype)
    tile = new(out.shape, x.dtype) if by_product else nl.load_transpose2d(x)
    for part in pieces(x.shape[0], TILE) if by_product else []:
        nisa.tensor_copy(dst=tile[:, part], src=turned(load(x[part])))
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def decays(delta: Any, a: Any, how: str) -> Any:
    """The sum over states of exp(delta a): delta [128, s], a [128, n]; of "spread" delta [s, 128], a [n, 128]."""
    out, total, step = output(*delta.shape), zeros(delta.shape), load(delta)
    columns = None if how == "spread" else load(a)
    for at in pieces(a.shape[0 if how == "spread" else 1], 1):
        product, more = step, {"scale": columns[:, at]} if how == "folded" else {}
        if how == "separate":
            product = new(step.shape)
            nisa.tensor_scalar(dst=product, data=step, op0=nl.multiply, operand0=columns[:, at])
        elif how == "spread":
            product = pair(step, nl.multiply, nl.broadcast_to(load(a[at]), step.shape))
        nisa.tensor_tensor(total, total, applied(nl.exp, product, **more), op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def mamba_whole(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """`mamba_v2` of 128 channels with instructions on the whole sequence, as its source has them.

    delta * u is spilled: it goes to HBM and comes back for every state, as in figure 14 of nki_perf_guide.rst.
    """
    out, away = output(*delta.shape), nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.private_hbm)
    ones, step, sums = fill((1, TILE), 1.0), load(delta), zeros(delta.shape)
    nisa.dma_copy(dst=away, src=pair(step, nl.multiply, load(u)))
    for at in pieces(a.shape[1], 1):
        decay, state = applied(nl.exp, step, scale=load(a[:, at])), load(away)
        nisa.tensor_tensor(state, state, spread_in_sbuf(ones, b[at]), op=nl.multiply)
        nisa.tensor_tensor_scan(state, decay, state, initial=0.0, op0=nl.multiply, op1=nl.add)
        nisa.tensor_tensor(state, state, spread_in_sbuf(ones, c[at]), op=nl.multiply)
        nisa.tensor_tensor(sums, sums, state, op=nl.add)
    nisa.dma_copy(dst=out, src=sums)
    return out


def spread_in_sbuf(ones: Any, line: Any) -> Any:
    """A line [1, s] of HBM on all partitions, in SBUF."""
    tile = new((TILE, line.shape[1]))
    for part in pieces(line.shape[1], WIDTH):
        nisa.activation(dst=tile[:, part], op=nl.copy, data=spread(ones, load(line[:, part])))
    return tile
