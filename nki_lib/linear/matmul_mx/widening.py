"""Microscaled factors widened to bfloat16 on chip, for generations without MX multiplication.

The words of `loading.py` are taken apart: lane i of a panel's words, times their scales, is a slab [p, f] with every
fourth of the panel's values on the contracted axis. Both factors are cut alike, so products of slabs add up to the same
sum. An element has at most four significant bits and its scale is a power of two: bfloat16 holds their product, but for
results beyond 2^128 or below 2^-133.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, load_by_partition, spans
from nki_lib.linear.matmul_mx.loading import (
    LANES,
    LeadingFactor,
    RowFactor,
    as_pairs,
    narrowed,
    transpose_into,
)
from nki_lib.quantization.blocks import (
    NIBBLE_UNIT,
    block_scales,
    from_nibbles,
    magnitudes,
    new,
    scale_into,
    scaled,
)
from nki_lib.quantization.formats import BLOCK, FORMATS

GROUP = BLOCK // LANES  # partitions that share a scale


class Widened:
    """A factor with scales as slabs."""

    def __init__(self, matrix: Any, scale: Any, format: str, leading: bool) -> None:
        self.factor = (LeadingFactor if leading else RowFactor)(matrix, scale, format)
        self.scale, self.made = scale.view(nl.float8_e8m0fnu), FORMATS[format]
        self.depth, self.width = self.factor.depth, self.factor.width
        self.multipliers = self.by_partition if leading else self.by_row

    def stretch(self, depths: Any, span: Any) -> list[Any]:
        """Four slabs of each panel."""
        words = spans((depths[1] - depths[0]) // LANES, nl.tile_size.pmax)
        slabs, width = [], span[1] - span[0]
        for (first, last), part in zip(words, self.factor.panels(depths, span, words)):
            start = depths[0] + LANES * first
            factor = self.multipliers((start, start + LANES * (last - first)), span)
            bytes_of = part[: last - first, :].view(nl.uint8)
            if self.made.element is None:
                halves = [half.reshape_dim(1, (-1, 2)) for half in from_nibbles(bytes_of)]
                lanes = [halves[i % 2][:, :width, i // 2] for i in range(LANES)]
            else:
                four = bytes_of.view(self.made.element).reshape_dim(1, (-1, LANES))
                lanes = [four[:, :width, i] for i in range(LANES)]
            unit = NIBBLE_UNIT if self.made.element is None else 1.0
            for lane in lanes:
                wide, slab = (new((last - first, width), nl.bfloat16) for _ in range(2))
                nisa.activation(dst=wide, op=nl.copy, data=lane, scale=unit)
                nisa.tensor_tensor(dst=slab, data1=wide, data2=factor, op=nl.multiply)
                slabs.append(slab)
        return slabs

    def by_partition(self, depths: Any, span: Any) -> Any:
        """Scales of a panel whose rows lie in HBM: every partition loads the row that its group shares."""
        rows = self.scale[depths[0] // BLOCK : depths[1] // BLOCK, span[0] : span[1]]
        tile = new((rows.shape[0] * GROUP, rows.shape[1]), rows.dtype)
        fetch(dst=tile, src=rows.expand_dim(1).broadcast(1, GROUP))
        result = new(tile.shape, nl.bfloat16)
        nisa.tensor_copy(dst=result, src=tile)
        return result

    def by_row(self, depths: Any, span: Any) -> Any:
        """Scales of a panel that lie along rows: repeated for every partition of their group, then transposed."""
        width, first, last = span[1] - span[0], depths[0] // BLOCK, depths[1] // BLOCK
        held = self.factor.held_scales(span).view(nl.float8_e8m0fnu)
        rows = new((*held.shape[:2], (last - first) * GROUP), nl.bfloat16)
        for block, (low, high) in enumerate(spans(width, nl.tile_size.pmax)):
            source = held[: high - low, block, first:last].expand_dim(2).broadcast(2, GROUP)
            target = rows[: high - low, block, :].reshape_dim(1, (last - first, GROUP))
            nisa.tensor_copy(dst=target, src=source)
        result = new((rows.shape[2], width), nl.bfloat16)
        transpose_into(result, rows, width, (0, rows.shape[2], 1), 1)
        return result


class RoundedValues:
    """Values [F, K], rounded to what MX elements with the scales of `nisa.quantize_mx` hold, as slabs."""

    def __init__(self, matrix: Any, format: str) -> None:
        self.matrix, self.made = matrix, FORMATS[format]
        self.depth, self.width = matrix.shape[1], matrix.shape[0]

    def stretch(self, depths: Any, span: Any) -> list[Any]:
        """Rows are rounded as they lie; then pairs are transposed."""
        count = span[1] - span[0]
        data = narrowed(load_by_partition(self.matrix[span[0] : span[1], depths[0] : depths[1]]), count)
        rows = new(data.shape, nl.bfloat16)
        for block, (first, last) in enumerate(spans(count, nl.tile_size.pmax)):
            tile = data[: last - first, block, :]
            codes, inverse = block_scales(magnitudes(tile, scalar=True), self.made.exponent - 1)
            factor = new(codes.shape, nl.bfloat16)
            nisa.tensor_copy(dst=factor, src=codes.view(nl.float8_e8m0fnu))
            scale_into(rows[: last - first, block, :], scaled(tile, inverse, self.made.element), factor)
        slabs = []
        for words in spans((depths[1] - depths[0]) // LANES, nl.tile_size.pmax):
            lanes = as_pairs(rows, count, words).view(nl.bfloat16).reshape_dim(1, (-1, LANES))
            slabs += [lanes[: words[1] - words[0], :, i] for i in range(LANES)]
        return slabs
