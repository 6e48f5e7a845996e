"""What happens to scores between the product q k^T and the softmax: soft cap, bias, and what each query may see.

All of it works in place, on the scores [m, n] of one tile of queries against n keys, in PSUM.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.flash_attention.order import Tile
from nki_lib.common.tiles import fetch, load

MINUS_INFINITY = float("-inf")
LARGEST = 3.4028234663852886e38  # of float32
TOWARDS_INFINITY = 4.0  # LARGEST times this is infinity


class ScoreRules:
    """The rules of one call. Dimensions: bias [G or 1, Sq or 1, Sk or 1]; q_ids [Sq].

    After `apply`, the score that counts is `scale` times what the tile holds.
    """

    def __init__(
        self, scale: float, causal: bool, window: int | None, softcap: float | None, bias: Any, q_ids: Any
    ) -> None:
        self.product_scale = scale
        self.softcap = softcap
        self.bias = bias
        self.q_ids = q_ids
        self.causal_mask = triangle_mask(0, keep_left=True) if causal else None
        self.window_mask = triangle_mask(nl.tile_size.pmax, keep_left=False) if window is not None else None
        self.scale = 1.0 if bias is not None else scale if softcap is None else softcap

    def cap(self, scores: Any) -> None:
        """scores = tanh(scores * scale / cap), if there is one."""
        if self.softcap is not None:
            nisa.activation(dst=scores, op=nl.tanh, data=scores, scale=self.product_scale / self.softcap)

    def mask(self, scores: Any, tile: Tile, start: int, ids: list[Any]) -> None:
        """Add the bias and hide what the tile may not see among the keys from `start` on."""
        if self.bias is not None:
            stop = start + scores.shape[1]
            self.add_bias(scores, tile, start, stop)
        if self.causal_mask is not None:
            add_mask(scores, self.causal_mask, tile.diagonal - start)
        if self.window_mask is not None:
            add_mask(scores, self.window_mask, tile.edge - nl.tile_size.pmax - start)
        if self.q_ids is not None:
            self.hide_other_ids(scores, tile, ids)

    def add_bias(self, scores: Any, tile: Tile, start: int, stop: int) -> None:
        """scores = scale * scores + bias, which is loaded for this block; dimensions of size 1 are repeated."""
        heads, queries, keys = self.bias.shape
        head = tile.head if heads > 1 else 0
        window = self.bias[head, tile.start : tile.stop, :] if queries > 1 else self.bias[head, 0:1, :]
        window = window[:, start:stop] if keys > 1 else window.broadcast(1, stop - start)
        if queries == 1:
            window = window.broadcast(0, scores.shape[0])
        bias = nl.ndarray(scores.shape, dtype=self.bias.dtype, buffer=nl.sbuf)
        fetch(dst=bias, src=window)
        scale = self.product_scale if self.softcap is None else self.softcap
        nisa.scalar_tensor_tensor(
            dst=scores, data=scores, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=bias
        )

    def hide_other_ids(self, scores: Any, tile: Tile, ids: list[Any]) -> None:
        """scores += -inf where the id of the key is not that of the query."""
        m = scores.shape[0]
        if tile.ids is None:
            tile.ids = load(self.q_ids[tile.start : tile.stop].expand_dim(1))
        column = 0
        for theirs in ids:
            width = theirs.shape[1]
            hidden = nl.ndarray((m, width), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=hidden,
                data=theirs[:m, :],
                op0=nl.not_equal,
                operand0=tile.ids,
                op1=nl.multiply,
                operand1=-LARGEST,
            )
            part = scores[:, column : column + width]
            nisa.scalar_tensor_tensor(
                dst=part, data=hidden, op0=nl.multiply, operand0=TOWARDS_INFINITY, op1=nl.add, operand1=part
            )
            column += width


def triangle_mask(before: int, keep_left: bool) -> Any:
    """What is added to scores around a diagonal: 0 on it and on one side of it, -inf on the other.

    Dimensions: [128, before + 128]; column `before` is the diagonal's in row 0.
    """
    side = nl.tile_size.pmax
    zeros = nl.ndarray((side, before + side), dtype=nl.float32, buffer=nl.sbuf)
    mask = nl.ndarray((side, before + side), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=zeros, value=0.0)
    sign = 1 if keep_left else -1
    nisa.affine_select(
        dst=mask,
        pattern=[[-sign, before + side]],
        offset=sign * before,
        channel_multiplier=sign,
        on_true_tile=zeros,
        on_false_value=MINUS_INFINITY,
        cmp_op=nl.greater_equal,
    )
    return mask


def add_mask(scores: Any, mask: Any, first: int) -> None:
    """scores[:, first : first + width of the mask] += mask, as far as these columns lie in this block."""
    m, n = scores.shape
    # A tile with fewer rows has fewer columns around its diagonal.
    width = mask.shape[1] - nl.tile_size.pmax + m
    start, stop = max(first, 0), min(first + width, n)
    if start < stop:
        window = scores[:, start:stop]
        part = mask[:m, start - first : stop - first]
        nisa.tensor_tensor(dst=window, data1=window, data2=part, op=nl.add)
