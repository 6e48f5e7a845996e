"""Sums over tokens for the losses of a router, on the Tensor engine. Letters: see `kernel.py`."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.lines import Lines
from nki_lib.reduction.topk.selection import GONE


class LossSums:
    """Tokens of every expert, sums of probabilities [1, E], and of logsumexp^2 [1, 1], in PSUM.

    A sum over tokens is a product with the column of numbers that say which tokens count.
    """

    def __init__(self, experts: int, valid: Any) -> None:
        self.valid = Lines(valid.expand_dim(1))
        self.counts, self.probabilities, self.squares = (
            nl.ndarray((1, width), dtype=nl.float32, buffer=nl.psum) for width in (experts, experts, 1)
        )

    def add(self, block: Any, keys: Any, softmax: Any, scores: Any, totals: Any) -> None:
        """The tokens of a block, whose chosen keys are gone.

        Dimensions: keys [m, g, E]; scores [m, g, E] and totals [m, g], their sums, or None: softmax it is.
        """
        m, g, _ = keys.shape
        valid = self.valid.load(block)[:, :, 0]
        chosen = nl.ndarray(keys.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=chosen, data=keys, op0=nl.equal, operand0=GONE)
        narrow, shares, squares = (
            nl.ndarray((m, g), dtype=dtype, buffer=nl.sbuf) for dtype in (nl.bfloat16, nl.float32, nl.float32)
        )
        nisa.tensor_copy(dst=narrow, src=valid)
        nisa.reciprocal(dst=shares, data=softmax.totals if totals is None else totals)
        nisa.tensor_tensor(dst=shares, data1=shares, data2=valid, op=nl.multiply)
        nisa.activation(dst=squares, op=nl.log, data=softmax.totals)
        nisa.tensor_tensor(dst=squares, data1=squares, data2=softmax.negated, op=nl.subtract)
        nisa.tensor_tensor(dst=squares, data1=squares, data2=squares, op=nl.multiply)
        powers = softmax.powers if scores is None else scores
        for i in range(g):
            mine = slice(i, i + 1)
            nisa.nc_matmul(dst=self.counts, stationary=narrow[:, mine], moving=chosen[:, i, :])
            nisa.nc_matmul(dst=self.probabilities, stationary=shares[:, mine], moving=powers[:, i, :])
            nisa.nc_matmul(dst=self.squares, stationary=valid[:, mine], moving=squares[:, mine])

    def results(self) -> list[Any]:
        """The three sums in HBM."""
        results = []
        for total in (self.counts, self.probabilities, self.squares):
            tile = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
            out = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.shared_hbm)
            nisa.tensor_copy(dst=tile, src=total)
            nisa.dma_copy(dst=out, src=tile)
            results.append(out)
        return results
