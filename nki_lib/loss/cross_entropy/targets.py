"""Rows of logits, what belongs to each, and the place of each row's target. Letters as in `kernel.py`."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, load_row


def new(shape: Any) -> Any:
    """A float32 tile."""
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def by_partition(tensor: Any) -> Any:
    """[N, ...] in HBM as [m, T, ...]: a partition has T rows that lie side by side."""
    m = min(tensor.shape[0], nl.tile_size.pmax)
    return tensor.reshape((m, tensor.shape[0] // m, *tensor.shape[1:]))


def load_weights(weights: Any, low: int, high: int, partitions: int) -> Any:
    """The weights of a chunk of classes in every partition. Dimensions: [V] or None -> [m, n] or None."""
    return None if weights is None else load_row(weights[low:high], partitions)


def scale_rows(tile: Any, row_weight: Any, factor: float) -> None:
    """tile *= row_weight * factor, in place. Dimensions: tile [m, T], row_weight [N] in HBM or None."""
    if row_weight is None:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        return
    weights = load(by_partition(row_weight))
    nisa.scalar_tensor_tensor(
        dst=tile, data=tile, op0=nl.multiply, operand0=factor, op1=nl.multiply, operand1=weights
    )


def split(classes_of: Any) -> tuple[Any, Any]:
    """1 where a row counts, and its class, class 0 where it does not. Dimensions: [m, T] int32 -> [m, T] each."""
    valid = nl.ndarray(classes_of.shape, dtype=nl.uint8, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=valid, data=classes_of, op0=nl.greater_equal, operand0=0.0)
    existing = nl.ndarray(classes_of.shape, dtype=nl.int32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=existing, data=classes_of, op0=nl.maximum, operand0=0.0)
    return valid, existing


class Targets:
    """Which element of every row is its target, and which rows count.

    Dimensions: target [N] int32 in HBM, negative where a row is ignored; rows [m, T, V] in HBM. places [m, T] int32:
    the target's place among all elements, that of class 0 for an ignored row; valid [m, T]: 1 where a row counts.
    """

    def __init__(self, target: Any, rows: Any) -> None:
        m, height, classes = rows.shape
        classes_of = load(by_partition(target))
        self.valid, existing = split(classes_of)
        first = nl.ndarray((m, height), dtype=nl.int32, buffer=nl.sbuf)
        nisa.iota(dst=first, pattern=[[classes, height]], channel_multiplier=height * classes)
        self.places = nl.ndarray((m, height), dtype=nl.int32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=self.places, data1=first, data2=existing, op=nl.add)

    def gather(self, rows: Any) -> Any:
        """The element of every row at its target. Dimensions: rows [m, T, V] in HBM -> [m, T]."""
        picked = nl.ndarray(self.places.shape, dtype=rows.dtype, buffer=nl.sbuf)
        for t in range(self.places.shape[1]):
            nisa.dma_copy(dst=picked[:, t : t + 1], src=self.elements(rows, t))
        return picked

    def scatter(self, rows: Any, values: Any) -> None:
        """Write the element of every row at its target. Dimensions: rows [m, T, V] in HBM, values [m, T]."""
        for t in range(self.places.shape[1]):
            nisa.dma_copy(dst=self.elements(rows, t), src=values[:, t : t + 1])

    def elements(self, rows: Any, t: int) -> Any:
        """The targets of the rows t of all partitions, as a view [m, 1]."""
        m, height, classes = rows.shape
        flat = rows.reshape((m * height * classes, 1))
        return flat.ap(pattern=[[1, m], [1, 1]], vector_offset=self.places[:, t : t + 1])


def counted(values: Any, valid: Any) -> Any:
    """The values of rows that count, 0 for the others whatever theirs are. Dimensions: [m, T] each -> [m, T]."""
    kept = new(values.shape)
    nisa.memset(dst=kept, value=0.0)
    nisa.tensor_copy_predicated(dst=kept, src=values, predicate=valid)
    return kept
