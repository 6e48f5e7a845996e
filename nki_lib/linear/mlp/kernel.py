"""The MLP of a transformer block in one kernel: norm, both products up, activation, product down, residual.

Letters used in every docstring here:
  R  rows, r of them in a block, up to 512    H  width of the model    I  width of the hidden layer
  k  slabs of up to 128 of a contracted axis, which lie on the partitions

The hidden layer comes out of the products up with its channels on the partitions, which is how the product down needs
it: it never leaves SBUF and is never transposed.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, load_row, spans
from nki_lib.linear.matmul.kernel import store_sum
from nki_lib.linear.mlp.activations import activate, at_most, gated, product, scaled
from nki_lib.linear.mlp.loading import Norm, columns_of, panels, slabs

KEPT_SHARE = 0.6  # of SBUF, for the rows and the hidden layer of a block; the rest is for weights in flight


@nki.jit
def mlp(
    x: Any,
    residual: Any,
    weights: Any,
    biases: Any,
    scales: Any,
    norm: Any,
    activation: str,
    limit: float | None,
) -> Any:
    """act(n gate^T + b) * (n up^T + b) down^T + b + residual, n the rows of x, normalised if there is a norm.

    Dimensions: x, residual [R, H]; weights, gate [I, H], up [I, H], down [H, I]; biases [I], [I], [H]; norm, None or
    kind, weight, bias [H], eps and offset. gate, biases and residual may be None: without a gate it is
    act(n up^T + b) down^T. Weights in 8 bits have scales, float32 like biases, None for others. -> [R, H]

    Pseudocode:
        for each block of rows:
            load it transposed, or normalise and transpose it
            for each 128 channels: multiply with gate and up, activate -> a slab of the hidden layer
            for each 512 columns of the result: multiply the slabs with down; add bias and residual; store
    """
    gate, up, down = weights
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    columns = [(columns_of(biases[i]), columns_of(scales[i])) for i in range(2)]
    before = None if norm is None else Norm(*norm)
    for start, stop in spans(x.shape[0], rows_at_a_time(x, up)):
        rows = transposed(x, start, stop) if before is None else before.slabs(x, start, stop)
        hidden = []
        for channels in spans(up.shape[0], nl.tile_size.pmax):
            hidden.append(hidden_slab(rows, gate, up, columns, channels, activation, limit))
        project_down(out, hidden, down, (biases[2], scales[2]), residual, start, stop)
    return out


def rows_at_a_time(x: Any, up: Any) -> int:
    """How many rows a block has: 512, or fewer if their slabs would not fit."""
    side = nl.tile_size.pmax
    per_row = (-(-up.shape[1] // side) + -(-up.shape[0] // side)) * x.dtype.itemsize
    rows = nl.tile_size.psum_bank_fmax
    while rows > 1 and rows * per_row > KEPT_SHARE * nl.tile_size.sbuf_fmax_bytes:
        rows //= 2
    return rows


def transposed(x: Any, start: int, stop: int) -> list[Any]:
    """Rows start ... stop - 1 as slabs [k, r] of H."""
    result = []
    for low, high in panels(x.shape[1]):
        result.extend(slabs(x[start:stop, low:high], x.dtype))
    return result


def hidden_slab(
    rows: list[Any], gate: Any, up: Any, columns: Any, channels: Any, activation: str, limit: float | None
) -> Any:
    """Some channels of the hidden layer. Dimensions: rows, slabs [k, r] of H; columns [128, I/128] -> [m, r]."""
    result = nl.ndarray((channels[1] - channels[0], rows[0].shape[1]), dtype=rows[0].dtype, buffer=nl.sbuf)
    above, bias = multiply(rows, up, channels, *columns[1])
    if gate is not None:
        opened, gate_bias = multiply(rows, gate, channels, *columns[0])
        gated(result, opened, above, (gate_bias, bias), activation, limit)
    elif limit is not None:
        activate(result, at_most(above, bias, limit), None, activation)
    else:
        activate(result, above, bias, activation)
    return result


def multiply(rows: list[Any], weight: Any, channels: Any, bias: Any, scale: Any) -> tuple[Any, Any]:
    """weight rows^T, and the bias to add; with a scale multiplied by it, the bias added already.

    Dimensions: rows, slabs [k, r] of H; weight [I, H], m channels of it; bias, scale [128, I/128] or None -> [m, r],
    [m, 1] or None.
    """
    first, stop = channels
    index = first // nl.tile_size.pmax
    mine = [None if column is None else column[: stop - first, index : index + 1] for column in (bias, scale)]
    total = nl.ndarray((stop - first, rows[0].shape[1]), dtype=nl.float32, buffer=nl.psum)
    count = 0
    for low, high in panels(weight.shape[1]):
        for slab in slabs(weight[first:stop, low:high], rows[0].dtype):
            nisa.nc_matmul(dst=total, stationary=slab, moving=rows[count])
            count += 1
    return (total, mine[0]) if scale is None else (scaled(total, mine[1], mine[0]), None)


def project_down(
    out: Any, hidden: list[Any], down: Any, added: Any, residual: Any, start: int, stop: int
) -> None:
    """Rows start ... stop - 1 of the result. Dimensions: out, residual [R, H]; hidden, slabs of I; down [H, I].

    `added`: bias and scale [H], or None.
    """
    side = nl.tile_size.pmax
    for first, last in spans(down.shape[0], nl.tile_size.psum_bank_fmax):
        tiles = spans(stop - start, side)
        totals = [
            nl.ndarray((high - low, last - first), dtype=nl.float32, buffer=nl.psum) for low, high in tiles
        ]
        height = min(side, stop - start)
        bias, scale = (None if row is None else load_row(row[first:last], height) for row in added)
        index = 0
        for depths in spans(down.shape[1], nl.tile_size.psum_bank_fmax):
            for slab in slabs(down[first:last, depths[0] : depths[1]], out.dtype):
                for t in range(len(tiles)):
                    low, high = tiles[t]
                    nisa.nc_matmul(dst=totals[t], stationary=hidden[index][:, low:high], moving=slab)
                index += 1
        for t in range(len(tiles)):
            low, high = tiles[t]
            terms = [totals[t] if scale is None else product(totals[t], scale[: high - low, :])]
            if bias is not None:
                terms.append(bias[: high - low, :])
            if residual is not None:
                terms.append(load(residual[start + low : start + high, first:last]))
            store_sum(out[start + low : start + high, first:last], terms)
