"""The gradient of a logit from the log sum exp of its row. Letters as in `kernel.py`."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import column_like, load, spans
from nki_lib.loss.cross_entropy.statistics import bent
from nki_lib.loss.cross_entropy.targets import by_partition, counted, load_weights, new, scale_rows

SUM_WIDTH = 4096  # class weights summed at a time


class Slopes:
    """dx = slope p - elsewhere w of every logit, where `at_target` replaces elsewhere w at the target: [m, T] each.

    Dimensions: rows: grad, lse [N] float32 and row_weight, [N] or None; weights [V] or None, of the smoothing;
    form: smoothing, z and the cap or None.
    """

    def __init__(self, targets: Any, rows: Any, weights: Any, classes: int, form: Any) -> None:
        grad, lse, row_weight = rows
        smoothing, z, self.cap = form
        valued = counted(load(by_partition(grad)), targets.valid)
        self.minus_lse = new(valued.shape)
        nisa.tensor_scalar(dst=self.minus_lse, data=load(by_partition(lse)), op0=nl.multiply, operand0=-1.0)
        self.at_target, self.slope, self.elsewhere = (new(valued.shape) for _ in range(3))
        nisa.tensor_copy(dst=self.at_target, src=valued)
        scale_rows(self.at_target, row_weight, 1.0 - smoothing)
        nisa.tensor_copy(dst=self.slope, src=self.at_target)
        nisa.tensor_scalar(dst=self.elsewhere, data=valued, op0=nl.multiply, operand0=smoothing / classes)
        if smoothing:
            total = classes if weights is None else weight_sum(weights, valued.shape[0])
            add_product(self.slope, self.elsewhere, total)
            own = new(valued.shape)
            nisa.tensor_copy(dst=own, src=self.elsewhere)
            if weights is not None:
                scale_rows(own, row_weight, 1.0)
            add_product(self.at_target, own, 1.0)
        if z:
            product = new(valued.shape)
            nisa.tensor_tensor(dst=product, data1=valued, data2=self.minus_lse, op=nl.multiply)
            add_product(self.slope, product, -2.0 * z)

    def write(self, dst: Any, tile: Any, t: int, less: Any, weight: Any) -> None:
        """dst = dx of logits of the rows t. Dimensions: dst, tile [m, n]; less [m, T]; weight [m, n] or None for 1."""
        slope, less = self.slope[:, t : t + 1], less[:, t : t + 1]
        p, cap, bias = new(tile.shape), self.cap, self.minus_lse[:, t : t + 1]
        tile = bent(tile, cap)
        nisa.activation(dst=p, op=nl.exp, data=tile, bias=bias, scale=1.0 if cap is None else cap)
        straight = dst if cap is None else p
        other_way = cap is not None  # then less - slope p: the way back through the cap turns the sign again
        if weight is None:
            nisa.tensor_scalar(
                dst=straight,
                data=p,
                op0=nl.multiply,
                operand0=slope,
                op1=nl.subtract,
                operand1=less,
                reverse1=other_way,
            )
        else:
            part = new(tile.shape)
            nisa.tensor_scalar(dst=part, data=weight, op0=nl.multiply, operand0=less)
            nisa.scalar_tensor_tensor(
                dst=straight,
                data=p,
                op0=nl.multiply,
                operand0=slope,
                op1=nl.subtract,
                operand1=part,
                reverse1=other_way,
            )
        if cap is not None:
            through_cap(dst, straight, tile)


def through_cap(dst: Any, minus: Any, tile: Any) -> None:
    """dst = minus (tile^2 - 1): the slope of cap * tanh(x / cap) is 1 - tanh^2. Dimensions: [m, n]; tile is lost."""
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.multiply)
    nisa.scalar_tensor_tensor(
        dst=dst, data=tile, op0=nl.subtract, operand0=1.0, op1=nl.multiply, operand1=minus
    )


def add_product(dst: Any, data: Any, factor: Any) -> None:
    """dst += data * factor, in place. Dimensions: dst, data [m, T]; factor a number or [m, 1]."""
    nisa.scalar_tensor_tensor(dst=dst, data=data, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=dst)


def weight_sum(weights: Any, partitions: int) -> Any:
    """The sum of the weights of all classes, in every partition. Dimensions: [V] -> [m, 1]."""
    parts = spans(weights.shape[0], SUM_WIDTH)
    sums = new((partitions, len(parts)))
    for i in range(len(parts)):
        tile = load_weights(weights, parts[i][0], parts[i][1], partitions)
        nisa.tensor_reduce(dst=sums[:, i : i + 1], op=nl.add, data=tile, axis=1)
    total = column_like(sums)
    nisa.tensor_reduce(dst=total, op=nl.add, data=sums, axis=1)
    return total
