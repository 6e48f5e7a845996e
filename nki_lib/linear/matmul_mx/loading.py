"""Microscaled factors on their way from HBM into the layout of `nisa.nc_matmul_mx`.

There, a word of four elements that follow each other on the contracted axis lies in a partition: word w of a panel of
512 elements in partition w, so that 8 partitions are one block of 32. Byte 4q + r of the panel's 16 scales lies in
partition 32q + r, or 4, 8, 12 further on: the scales of four panels, a stretch, share a tile.

Letters:  F  the free axis of a factor, f of it at once, up to 512     E  bytes of elements on the contracted axis
          K  the contracted axis, blocks of 32, G of them               p  words of a panel, up to 128
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, load_by_partition, spans
from nki_lib.quantization.blocks import new
from nki_lib.quantization.formats import BLOCK, FORMATS

LANES = 4  # elements of a word
PANEL = LANES * nl.tile_size.pmax
STRETCH = 4 * PANEL
QUADRANT = 32
QUADRANTS = nl.tile_size.pmax // QUADRANT
SCALES = 4  # partitions that the scales of one panel take in a quadrant

WORDS = {
    "mxfp8_e4m3": (nl.float8_e4m3fn_x4, nl.float32),
    "mxfp8_e5m2": (nl.float8_e5m2_x4, nl.float32),
    "mxfp4_e2m1": (nl.float4_e2m1fn_x4, nl.bfloat16),
}
"""A format's words, and a type of their size in which they are transposed and copied: bits do not change."""


class Factor:
    """A factor of the product: depth K, width F. `stretch` loads up to 2048 of K as panels (words [p, f], scales)."""

    def __init__(self, matrix: Any, scale: Any, format: str, depth: int, width: int) -> None:
        self.matrix, self.scale = matrix, scale
        self.words, self.carrier = WORDS[format]
        self.depth, self.width = depth, width
        self.bytes = LANES // FORMATS[format].packed

    def stretch(self, depths: Any, span: Any) -> list[Any]:
        """Panels of K from depths[0] to depths[1] - 1 and F from span[0] to span[1] - 1."""
        words = spans((depths[1] - depths[0]) // LANES, nl.tile_size.pmax)
        scales = self.scales(depths, span)
        panels = self.panels(depths, span, words)
        return [(panels[i].view(self.words), scales[SCALES * i :, :]) for i in range(len(panels))]


class RowFactor(Factor):
    """Elements [F, E] and scales [F, G]: the contracted axis last, as `torch.nn.Linear` keeps a weight."""

    def __init__(self, matrix: Any, scale: Any, format: str) -> None:
        packed = FORMATS[format].packed
        super().__init__(matrix, scale, format, matrix.shape[1] * packed, matrix.shape[0])
        self.span, self.held = None, None

    def panels(self, depths: Any, span: Any, words: Any) -> list[Any]:
        """Words are transposed like numbers of their size."""
        rows = load_by_partition(
            self.matrix.view(self.carrier)[span[0] : span[1], depths[0] // LANES : depths[1] // LANES]
        )
        parts = []
        for i, (first, last) in enumerate(words):
            parts.append(blank(last - first, span[1] - span[0], self.carrier))
            transpose_into(parts[-1], rows, span[1] - span[0], (first, last, 1), i)
        return parts

    def scales(self, depths: Any, span: Any) -> Any:
        """Bytes are numbers up to 255, transposed as bfloat16."""
        width = span[1] - span[0]
        rows = spread(self.held_scales(span)[:, :, depths[0] // BLOCK : depths[1] // BLOCK], width)
        result = new((nl.tile_size.pmax, even(width)), nl.uint8)
        if width % 2:
            nisa.memset(dst=result, value=0)
        transpose_into(result, rows, width, (0, nl.tile_size.pmax, 1), 1)
        return result

    def held_scales(self, span: Any) -> Any:
        """All scales of these rows, in one load: a stretch has but 64 bytes of a row. -> uint8 [128, f/128, G]."""
        if span != self.span:
            self.span, self.held = span, load_by_partition(self.scale[span[0] : span[1], :])
        return self.held


class LeadingFactor(Factor):
    """Elements [E, F] and scales [G, F]: the contracted axis first. Its bytes are shuffled into words on chip."""

    def __init__(self, matrix: Any, scale: Any, format: str) -> None:
        super().__init__(matrix, scale, format, matrix.shape[0] * FORMATS[format].packed, matrix.shape[1])

    def panels(self, depths: Any, span: Any, words: Any) -> list[Any]:
        """The rows of a word go to one partition, side by side; then their bytes take turns."""
        width, start = span[1] - span[0], depths[0] // LANES
        parts = []
        for first, last in words:
            rows = self.matrix[(start + first) * self.bytes : (start + last) * self.bytes, span[0] : span[1]]
            tile = new((last - first, self.bytes, width), nl.uint8)
            fetch(dst=tile, src=rows.reshape_dim(0, (last - first, self.bytes)))
            part = blank(last - first, width, self.carrier)
            turns = part.view(nl.uint8).reshape_dim(1, (even(width), self.bytes))
            for byte in range(self.bytes):  # Scalar engine and Vector engine by turns
                target = turns[: last - first, :width, byte]
                nisa.tensor_copy(dst=target, src=tile[:, byte, :], engine=copier(byte))
            parts.append(part)
        return parts

    def scales(self, depths: Any, span: Any) -> Any:
        """Rows of bytes go straight to their partitions."""
        first, count, width = depths[0] // BLOCK, (depths[1] - depths[0]) // BLOCK, span[1] - span[0]
        result = new((nl.tile_size.pmax, even(width)), nl.uint8)
        if count % SCALES or width % 2:
            nisa.memset(dst=result, value=0)
        for group in range(0, count, SCALES):
            panel, quadrant = divmod(group // SCALES, QUADRANTS)
            start, rows = QUADRANT * quadrant + SCALES * panel, min(SCALES, count - group)
            source = self.scale[first + group : first + group + rows, span[0] : span[1]]
            fetch(dst=result[start : start + rows, :width], src=source)
        return result


class QuantizedFactor(Factor):
    """Values [F, K], quantised on the way by `nisa.quantize_mx`: its scales are twice those of the OCP conversion."""

    def __init__(self, matrix: Any, format: str) -> None:
        super().__init__(matrix, None, format, matrix.shape[1], matrix.shape[0])

    def stretch(self, depths: Any, span: Any) -> list[Any]:
        """As of the other factors. Pairs of values are transposed like a float32."""
        width = span[1] - span[0]
        rows = narrowed(load_by_partition(self.matrix[span[0] : span[1], depths[0] : depths[1]]), width)
        scales = new((nl.tile_size.pmax, even(width)), nl.uint8)
        panels = []
        for i, part in enumerate(spans((depths[1] - depths[0]) // LANES, nl.tile_size.pmax)):
            tile = as_pairs(rows, width, part)
            words = new((tile.shape[0], even(width)), self.words)
            nisa.quantize_mx(dst=words, src=tile.view(rows.dtype), dst_scale=scales[SCALES * i :, :])
            panels.append((words, scales[SCALES * i :, :]))
        return panels


class Held:
    """The panels of a factor that serve again, as long as `keep` says that they fit."""

    def __init__(self, factor: Any, keep: bool) -> None:
        self.factor, self.keep = factor, keep
        self.depth, self.width = factor.depth, factor.width
        self.held = {}

    def stretch(self, depths: Any, span: Any) -> list[Any]:
        """The same panels as the factor's."""
        if not self.keep:
            return self.factor.stretch(depths, span)
        if (depths, span) not in self.held:
            self.held[(depths, span)] = self.factor.stretch(depths, span)
        return self.held[(depths, span)]

    def forget(self) -> None:
        """Others come: the memory is theirs."""
        self.held = {}


def transpose_into(dst: Any, rows: Any, width: int, columns: Any, turn: int) -> None:
    """dst[i, r] = column i of row r, through one bank of PSUM.

    Dimensions: rows [128, f/128, ...], as `load_by_partition` leaves them, columns (first, stop, step) of them
    -> dst [at least as many, at least f]. Words of 32 bits go in halves, which meet again in PSUM: the Tensor engine
    takes numbers of 16 bits in a single pass.
    """
    first, stop, step = columns
    count = -(-(stop - first) // step)
    each = rows.dtype.itemsize // 2
    halves = rows.view(nl.bfloat16) if each == 2 else rows
    in_psum = nl.ndarray((count, width * each), dtype=halves.dtype, buffer=nl.psum)
    target = in_psum.reshape_dim(1, (width, each))
    for block, (low, high) in enumerate(spans(width, nl.tile_size.pmax)):
        for half in range(each):
            part = halves[: high - low, block, :].slice(1, first * each + half, stop * each, step * each)
            nisa.nc_transpose(dst=target[:, low:high, half], data=part)
    nisa.tensor_copy(dst=dst[:count, :width], src=in_psum.view(rows.dtype), engine=copier(turn))


def narrowed(rows: Any, width: int) -> Any:
    """float32 rounded to bfloat16; other types as they are. Dimensions: [128, f/128, k] -> the same."""
    if rows.dtype != nl.float32:
        return rows
    result = new(rows.shape, nl.bfloat16)
    for partitions, blocks in loaded(width):
        nisa.tensor_copy(dst=result[partitions, blocks, :], src=rows[partitions, blocks, :])
    return result


def loaded(width: int) -> list[Any]:
    """What `load_by_partition` has written of so many rows: (partitions, blocks) of the whole blocks, and the rest."""
    full, rest = divmod(width, nl.tile_size.pmax)
    parts = [(slice(0, nl.tile_size.pmax), slice(0, full))] if full else []
    return parts + ([(slice(0, rest), slice(full, full + 1))] if rest else [])


def as_pairs(rows: Any, width: int, words: Any) -> Any:
    """Words of four 16-bit values as two float32: pairs are transposed like one.

    Dimensions: rows [128, f/128, k] -> [p, 2f] of the words from words[0] to words[1] - 1.
    """
    result, pairs = blank(words[1] - words[0], width, nl.float32, 2), rows.view(nl.float32)
    for half in range(2):
        target = result.reshape_dim(1, (even(width), 2))[:, :, half]
        transpose_into(target, pairs, width, (2 * words[0] + half, 2 * words[1], 2), half)
    return result


def spread(scales: Any, width: int) -> Any:
    """Scales in a row of 128 places, in the order in which they lie in a column of partitions.

    Dimensions: uint8 [128, f/128, up to 64] -> bfloat16 [128, f/128, 128].
    """
    result = new((*scales.shape[:2], nl.tile_size.pmax), nl.bfloat16)
    nisa.memset(dst=result, value=0)
    for partitions, blocks in loaded(width):
        spread_into(result[partitions, blocks, :], scales[partitions, blocks, :])
    return result


def spread_into(result: Any, scales: Any) -> None:
    """Scale 16i + 4q + r to place 32q + 4i + r: whole panels together, then the quadrants of the last one."""
    count, each = scales.shape[2], QUADRANTS * SCALES
    full = count // each
    if full:
        for block in range(scales.shape[1]):
            source = scales[:, block, : full * each].reshape_dim(1, (full, QUADRANTS, SCALES))
            target = result[:, block, :].reshape_dim(1, (QUADRANTS, QUADRANT))[:, :, : full * SCALES]
            nisa.tensor_copy(dst=target.reshape_dim(2, (full, SCALES)), src=source.permute((0, 2, 1, 3)))
    for first in range(full * each, count, SCALES):
        last = min(first + SCALES, count)
        place = QUADRANT * (first // SCALES % QUADRANTS) + SCALES * full
        nisa.tensor_copy(dst=result[:, :, place : place + last - first], src=scales[:, :, first:last])


def blank(words: int, width: int, dtype: Any, each: int = 1) -> Any:
    """A tile for so many words, in whole quadrants, and an even width; zero where that is more.

    Dimensions: -> [p, f * each].
    """
    tile = new((-(-words // QUADRANT) * QUADRANT, even(width) * each), dtype)
    if tile.shape != (words, width * each):
        nisa.memset(dst=tile, value=0)
    return tile


def copier(turn: int) -> Any:
    """Who copies: the Scalar engine, where it can, and the Vector engine by turns."""
    able = nisa.get_nc_version() > nisa.nc_version.gen2
    return nisa.engine.scalar if able and turn % 2 else nisa.engine.vector


def even(count: int) -> int:
    """The Tensor engine takes columns by twos."""
    return count + count % 2
