"""The gradients of a norm's weight and bias: sums over all rows, in float32 and in one order.

Letters:  R  rows, m of them in a tile, up to 128    H  their width, n columns of it at a time
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, spans

BANKS = 2  # of PSUM, that one sum over all rows takes


@nki.jit
def weight_gradients(x: Any, grad: Any, negated: Any, scales: Any, with_bias: bool) -> Any:
    """sum(dy * (x - mean) * r) over all rows, and sum(dy).

    Dimensions: x, grad [R, H], negated (-mean) [R, 1] or None, scales (r) [R, 1] float32 -> [1, H] float32, twice with
    a bias.

    Pseudocode:
        for each group of columns, for each tile of rows:
            product = (x - mean) * dy; total += r^T product; of the bias, total += ones^T dy, both in PSUM
    """
    rows, width = x.shape
    most = nl.tile_size.psum_bank_fmax
    of_weight = nl.ndarray((1, width), dtype=nl.float32, buffer=nl.shared_hbm)
    of_bias = nl.ndarray((1, width), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = spans(rows, nl.tile_size.pmax)
    roots = [load(scales[start:stop, :]) for start, stop in tiles]
    means = None if negated is None else [load(negated[start:stop, :]) for start, stop in tiles]
    ones = nl.ndarray((nl.tile_size.pmax, 1), dtype=grad.dtype, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    for low, high in spans(width, BANKS * most):
        cuts = spans(high - low, most)
        sums, bias_sums = (
            [nl.ndarray((1, b - a), dtype=nl.float32, buffer=nl.psum) for a, b in cuts] for _ in range(2)
        )
        for t in range(len(tiles)):
            start, stop = tiles[t]
            slope = load(grad[start:stop, low:high])
            product = products(load(x[start:stop, low:high]), slope, None if means is None else means[t])
            for c in range(len(cuts)):
                a, b = cuts[c]
                nisa.nc_matmul(dst=sums[c], stationary=roots[t], moving=product[:, a:b])
                if with_bias:
                    nisa.nc_matmul(dst=bias_sums[c], stationary=ones[: stop - start, :], moving=slope[:, a:b])
        store_sums(of_weight, low, cuts, sums)
        if with_bias:
            store_sums(of_bias, low, cuts, bias_sums)
    return (of_weight, of_bias) if with_bias else of_weight


def products(tile: Any, slope: Any, mean: Any) -> Any:
    """(tile + mean) * slope in float32, `mean` being negated. Dimensions: [m, n], mean [m, 1] or None."""
    result = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    if mean is None:
        nisa.tensor_tensor(dst=result, data1=tile, data2=slope, op=nl.multiply)
    else:
        nisa.scalar_tensor_tensor(
            dst=result, data=tile, op0=nl.add, operand0=mean, op1=nl.multiply, operand1=slope
        )
    return result


def store_sums(out: Any, low: int, cuts: Any, sums: list[Any]) -> None:
    """Columns of `out` from `low` on. Dimensions: out [1, H] in HBM, sums [1, n] in PSUM."""
    for c in range(len(cuts)):
        a, b = cuts[c]
        row = nl.ndarray((1, b - a), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=row, src=sums[c])
        nisa.dma_copy(dst=out[:, low + a : low + b], src=row)
