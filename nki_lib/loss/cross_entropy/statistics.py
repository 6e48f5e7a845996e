"""What is gathered from a row while its chunks go by, and what the loss is made of. Letters as in `kernel.py`."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import LOWEST, column_like
from nki_lib.loss.cross_entropy.targets import counted, new, scale_rows

LARGEST_KNOWN_TOP = 40.0
"""Capped logits lie between -cap and cap. Up to this cap it serves as maximum, as exp(-2 cap) is a normal number."""


class Statistics:
    """Of every chunk of every row its maximum and, relative to it, the sum of exponentials: [m, T, C] each.

    Chunks know nothing of each other until the end, so no small instruction waits for another one. `lows` are the
    maxima with the other sign. `weighted`: the sums of w x. `weight_sums` [m, C]: those of w, the same in all rows.
    With a cap the tiles that come are tanh(logit / cap), and logits are `scale` times them.
    """

    def __init__(self, shape: Any, cap: float | None) -> None:
        self.shape = shape
        self.scale = 1.0 if cap is None else cap
        self.capped = cap is not None
        self.lows, self.totals, self.weighted = new(shape), new(shape), new(shape)
        self.weight_sums = new((shape[0], shape[2]))
        self.known = self.capped and self.scale <= LARGEST_KNOWN_TOP
        if self.known:
            nisa.memset(dst=self.lows, value=-self.scale)

    def sum_exponentials(self, tile: Any, t: int, c: int) -> None:
        """Of the chunk c of the rows t; the tile [m, n] is used up. On trn3 two engines can, and take turns."""
        low, total = self.lows[:, t, c : c + 1], self.totals[:, t, c : c + 1]
        if not self.known:
            top = nl.ndarray(low.shape, dtype=tile.dtype, buffer=nl.sbuf)  # twice as fast in one narrow type
            nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=1)
            nisa.tensor_scalar(
                dst=low, data=top, op0=nl.maximum, operand0=LOWEST, op1=nl.multiply, operand1=-self.scale
            )
        if nisa.get_nc_version() < nisa.nc_version.gen4 or self.capped or (t + c) % 2:
            nisa.activation_reduce(
                dst=tile,
                op=nl.exp,
                data=tile,
                bias=low,
                scale=self.scale,
                reduce_op=nl.add,
                reduce_res=total,
            )
            return
        finite = column_like(tile)
        nisa.tensor_scalar(dst=finite, data=low, op0=nl.multiply, operand0=-1.0)
        nisa.exponential(
            dst=tile,
            src=tile,
            max_value=finite,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )

    def sum_weighted(self, tile: Any, weight: Any, t: int, c: int) -> None:
        """Of the chunk c of the rows t. Dimensions: tile [m, n], weight [m, n] or None for 1."""
        result = self.weighted[:, t, c : c + 1]
        # The Scalar engine has time for a third of them.
        if weight is None and not self.capped and (t + c) % 3 == 0:
            nisa.activation_reduce(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=result)
            return
        if weight is None:
            nisa.tensor_reduce(dst=result, op=nl.add, data=tile, axis=1)
            return
        if t == 0:
            nisa.tensor_reduce(dst=self.weight_sums[:, c : c + 1], op=nl.add, data=weight, axis=1)
        product = new(tile.shape)
        nisa.tensor_tensor(dst=product, data1=tile, data2=weight, op=nl.multiply)
        nisa.tensor_reduce(dst=result, op=nl.add, data=product, axis=1)

    def log_sum_exp(self) -> Any:
        """[m, T] of all chunks together."""
        m, height, count = self.shape
        lowest, lse = new((m, height, 1)), new((m, height))
        nisa.tensor_reduce(dst=lowest, op=nl.minimum, data=self.lows, axis=2)
        below, shares, total = new(self.shape), new(self.shape), new((m, height))
        nisa.tensor_tensor(dst=below, data1=lowest.broadcast(2, count), data2=self.lows, op=nl.subtract)
        nisa.activation(dst=shares, op=nl.exp, data=below)
        nisa.tensor_tensor(dst=shares, data1=shares, data2=self.totals, op=nl.multiply)
        nisa.tensor_reduce(dst=total, op=nl.add, data=shares, axis=2)
        nisa.activation(dst=total, op=nl.log, data=total)
        nisa.tensor_tensor(dst=lse, data1=total, data2=lowest[:, :, 0], op=nl.subtract)
        return lse


def bent(tile: Any, cap: float | None) -> Any:
    """tanh(tile / cap) in float32; the tile itself without a cap. Dimensions: [m, n] -> [m, n]."""
    if cap is None:
        return tile
    result = new(tile.shape)
    nisa.activation(dst=result, op=nl.tanh, data=tile, scale=1.0 / cap)
    return result


def losses(found: Any, picked: Any, valid: Any, by_class: Any, classes: int, form: Any) -> Any:
    """The loss and the log sum exp of all rows, as [m, T, 2].

    Dimensions: picked [m, T], the tile's element at each target; valid [m, T], 1 where a row counts; by_class: the
    weights of rows [N] or None, and of classes [V] or None, which `found` has summed; form: smoothing and z.
    """
    (row_weight, weights), (smoothing, z) = by_class, form
    lse = found.log_sum_exp()
    loss = new(picked.shape)
    nisa.scalar_tensor_tensor(
        dst=loss, data=picked, op0=nl.multiply, operand0=-found.scale, op1=nl.add, operand1=lse
    )
    scale_rows(loss, row_weight, 1.0 - smoothing)
    if smoothing:
        add_smoothing(loss, lse, found, weights, classes, smoothing)
    if z:
        square = new(picked.shape)
        nisa.tensor_tensor(dst=square, data1=lse, data2=lse, op=nl.multiply)
        nisa.scalar_tensor_tensor(
            dst=loss, data=square, op0=nl.multiply, operand0=z, op1=nl.add, operand1=loss
        )
    both = new((*picked.shape, 2))
    nisa.tensor_copy(dst=both[:, :, 0], src=counted(loss, valid))
    nisa.tensor_copy(dst=both[:, :, 1], src=lse)
    return both


def add_smoothing(loss: Any, lse: Any, found: Any, weights: Any, classes: int, smoothing: float) -> None:
    """loss += smoothing / V * sum of w (lse - x). Dimensions: loss, lse [m, T]; weights, found have been summed."""
    total = classes if weights is None else column_like(loss)
    if weights is not None:
        nisa.tensor_reduce(dst=total, op=nl.add, data=found.weight_sums, axis=1)
    of_x, spread = new(loss.shape), new(loss.shape)
    nisa.tensor_reduce(dst=of_x, op=nl.add, data=found.weighted, axis=2)
    if found.capped:
        nisa.tensor_scalar(dst=of_x, data=of_x, op0=nl.multiply, operand0=found.scale)
    nisa.scalar_tensor_tensor(
        dst=spread, data=lse, op0=nl.multiply, operand0=total, op1=nl.subtract, operand1=of_x
    )
    nisa.scalar_tensor_tensor(
        dst=loss, data=spread, op0=nl.multiply, operand0=smoothing / classes, op1=nl.add, operand1=loss
    )
