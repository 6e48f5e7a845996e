"""One step of AdamW, in place, from one reading of parameter, gradient and both moments.

Letters used in every docstring here:
  n  elements of the parameter, of which m = 128 runs lie on the partitions; the last n % 128 come by themselves
  F  columns of the runs, f of them in a tile
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, load_row, spans

COLUMNS = 2048  # of a tile: 8 KiB of float32 for each run that the DMA moves, and eight such tiles fit twice

KEEP_FIRST, TAKE_FIRST, KEEP_SECOND, TAKE_SECOND, CORRECTION, EPS, MINUS_RATE, DECAY = range(8)
"""Places of the coefficients: of the moments, 1 / (1 - beta2^step), eps, -lr / (1 - beta1^step), 1 - lr weight_decay.

TAKE_SECOND is the root of its coefficient, as it is applied before the gradient is squared.
"""


@nki.jit
def adamw(param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, coefficients: Any) -> None:
    """A step of AdamW in float32; parameter and moments are written in place, each rounded once.

    Dimensions: param, grad, exp_avg, exp_avg_sq [n]; coefficients [8] float32, in the order of their names above: as
    they are data, one program serves every step and every learning rate.

    Pseudocode:
        for each tile of [m, f]: load all four;
            first  = KEEP_FIRST first + TAKE_FIRST grad
            second = KEEP_SECOND second + (TAKE_SECOND grad)^2
            param  = DECAY param + MINUS_RATE first / (root(CORRECTION second) + EPS)
            store all three
    """
    factors = load_row(coefficients, nl.tile_size.pmax)
    for low, high, m in runs(param.shape[0]):
        views = [t[low:high].reshape((m, (high - low) // m)) for t in (param, grad, exp_avg, exp_avg_sq)]
        for start, stop in spans(views[0].shape[1], COLUMNS):
            parts = [view[:, start:stop] for view in views]
            results = update([load(part) for part in parts], factors[:m, :])
            for part, result in zip((parts[0], *parts[2:]), results):
                nisa.dma_copy(dst=part, src=result)


def runs(count: int) -> list[Any]:
    """The elements as triples (low, high, m): 128 runs of equal length, and the rest on one partition."""
    side = nl.tile_size.pmax
    whole = count // side * side
    parts = [(0, whole, side), (whole, count, 1)]
    return [part for part in parts if part[0] < part[1]]


def update(tiles: Any, factors: Any) -> Any:
    """New parameter and moments. Dimensions: tiles are param, grad and both moments, [m, f]; factors [m, 8]."""
    param, grad, old_first, old_second = tiles

    def factor(place: int) -> Any:
        return factors[:, place : place + 1]

    def new(dtype: Any = nl.float32) -> Any:
        return nl.ndarray(param.shape, dtype=dtype, buffer=nl.sbuf)

    def scaled(data: Any, place: int) -> Any:
        result = new()
        nisa.tensor_scalar(dst=result, data=data, op0=nl.multiply, operand0=factor(place))
        return result

    def combined(data: Any, place: int, added: Any, dtype: Any = nl.float32) -> Any:
        result = new(dtype)
        nisa.scalar_tensor_tensor(
            dst=result, data=data, op0=nl.multiply, operand0=factor(place), op1=nl.add, operand1=added
        )
        return result

    square, root = new(), new()
    nisa.activation(dst=square, op=nl.square, data=grad, scale=factor(TAKE_SECOND))
    second = combined(old_second, KEEP_SECOND, square)
    first = combined(old_first, KEEP_FIRST, scaled(grad, TAKE_FIRST))
    nisa.activation(dst=root, op=nl.sqrt, data=second, scale=factor(CORRECTION))
    nisa.tensor_scalar(dst=root, data=root, op0=nl.add, operand0=factor(EPS))
    nisa.activation(dst=root, op=nl.reciprocal, data=root)
    nisa.tensor_tensor(dst=root, data1=root, data2=first, op=nl.multiply)
    moved = combined(root, MINUS_RATE, scaled(param, DECAY), param.dtype)
    return [moved, stored(first, old_first.dtype), stored(second, old_second.dtype)]


def stored(tile: Any, dtype: Any) -> Any:
    """The tile in this type, rounded on the Scalar engine. Dimensions: [m, f] -> [m, f]."""
    if tile.dtype == dtype:
        return tile
    result = nl.ndarray(tile.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.copy, data=tile)
    return result
