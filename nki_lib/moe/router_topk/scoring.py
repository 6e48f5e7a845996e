"""What experts are chosen by, and their probabilities. Letters: see `kernel.py`."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.reduction.topk.selection import EIGHT, GONE

# Stands for minus infinity, below which there is what has been taken away; twice it is finite.
LOWEST = -(2.0**126)


class Softmax:
    """exp(logits - max) of all tokens of a block, as far as needed.

    negated [m, g], in the dtype of the logits: -max. If whole: powers [m, g, E] and their sums, totals [m, g].
    """

    def __init__(self, tile: Any, whole: bool) -> None:
        m, g, _ = tile.shape
        self.negated = nl.ndarray((m, g), dtype=tile.dtype, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=self.negated, data=tile, op=nl.maximum, axis=2, negate=True)
        if whole:
            self.powers = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
            self.totals = nl.ndarray((m, g), dtype=nl.float32, buffer=nl.sbuf)
            for i in range(g):
                self.of(self.powers[:, i, :], tile[:, i, :], self.totals[:, i : i + 1], i)

    def of(self, dst: Any, logits: Any, total: Any, i: int) -> None:
        """dst = exp(logits - max) and their sum, for place i of the block. Dimensions: [m, f], total [m, 1]."""
        nisa.activation_reduce(
            dst=dst,
            op=nl.exp,
            data=logits,
            bias=self.negated[:, i : i + 1],
            reduce_op=nl.add,
            reduce_res=total,
        )


def sigmoids(tile: Any) -> tuple[Any, Any]:
    """1 / (1 + exp(-x)) and their sums over experts. Dimensions: [m, g, E] -> [m, g, E], [m, g] float32."""
    m, g, _ = tile.shape
    scores = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    totals = nl.ndarray((m, g), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(g):
        nisa.activation_reduce(
            dst=scores[:, i, :],
            op=nl.sigmoid,
            data=tile[:, i, :],
            reduce_op=nl.add,
            reduce_res=totals[:, i : i + 1],
        )
    return scores, totals


def guarded_keys(scores: Any, shift: Any) -> Any:
    """scores + shift with NaN as the greatest and no minus infinity; those of less than eight experts are filled up.

    Dimensions: scores [m, g, E], shift [128, E] or None -> [m, g, E or 8] float32.
    """
    m, g, experts = scores.shape
    keys = nl.ndarray((m, g, max(experts, EIGHT)), dtype=nl.float32, buffer=nl.sbuf)
    if experts < EIGHT:
        nisa.memset(dst=keys, value=GONE)
    mine = keys[:, :, :experts]
    if shift is None:
        nisa.tensor_scalar(dst=mine, data=scores, op0=nl.maximum, operand0=LOWEST)
    else:
        nisa.scalar_tensor_tensor(
            dst=mine,
            data=shift[:m, :].expand_dim(1).broadcast(1, g),
            op0=nl.maximum,
            operand0=LOWEST,
            op1=nl.add,
            operand1=scores,
        )
    unordered = nl.ndarray(scores.shape, dtype=nl.uint8, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=unordered, data1=scores, data2=scores, op=nl.not_equal)
    nisa.tensor_copy_predicated(dst=mine, src=float("inf"), predicate=unordered)
    return keys
