"""Convolution of 3 x 3 with bias and max pooling, as two students of CS 149 solved it: a product for every tap."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.samples_steps import BANK, PARTITIONS, bank, copied, load, new, pair

# ---- trn2: row by row -------------------------------------------------------------------------------------------


@nki.jit
def conv_by_rows(x: Any, w: Any, bias: Any, pool: int) -> Any:
    """cs149-2-conv-float16-p1 and -p2: weights transposed once, then an output row at a time.

    Dimensions: x [B, C, H, W], w [M, C, 3, 3], bias [M] -> [B, M, H' / pool, W' / pool] with H' = H - 2, W' = W - 2.

    Pseudocode, for each image, 128 output channels and pooled row:
        for each of the `pool` rows under it:
            for each 128 input channels and row of the filter:
                load one row of x                               # [128, W], a new load for each row of the filter
                accumulate three products of W' columns, one for each tap of the filter's row
            copy the sum from PSUM into the row's place
        reduce with max over the window; load the bias; add it; store the pooled row
    The original reuses one tile for all rows of x. Loads would then wait for products, which takes longer than was
    measured: its compiler gave each load a place of its own, and so does this.
    """
    images, _, height, width = x.shape
    filters, side = w.shape[0], w.shape[2]
    rows, columns = (height - side + 1) // pool, (width - side + 1) // pool
    out = nl.ndarray((images, filters, rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    weights = transposed_weights(w)
    biases = bias.reshape((filters, 1))
    for image in range(images):
        for m in range(filters // PARTITIONS):
            channels = slice(m * PARTITIONS, (m + 1) * PARTITIONS)
            for y in range(rows):
                products = new((PARTITIONS, pool, columns * pool), x.dtype)
                for p in range(pool):
                    total = row_of_products(x[image], weights[:, :, m], y * pool + p)
                    nisa.tensor_copy(dst=products[:, p, :], src=total)
                pooled = new((PARTITIONS, columns), x.dtype)
                windows = products.reshape((PARTITIONS, pool, columns, pool)).permute((0, 2, 1, 3))
                nisa.tensor_reduce(dst=pooled, op=nl.maximum, data=windows, axis=(2, 3))
                column = load(biases[channels, :])
                shifted = pair(pooled, nl.add, column.broadcast(1, columns))
                nisa.dma_copy(dst=out[image, channels, y, :], src=shifted)
    return out


def transposed_weights(w: Any) -> Any:
    """The weights in SBUF, input channels on the partitions: [128, 128 output channels, M / 128, C / 128, 9].

    Pseudocode, for each block of 128 x 128 channels:
        load it                                                 # 16384 pieces of 9 numbers
        for each tap: transpose in PSUM, copy out, copy to its strided place
    """
    filters, channels, side, _ = w.shape
    taps = side * side
    flat = w.reshape((filters, channels, taps))
    weights = new((PARTITIONS, PARTITIONS, filters // PARTITIONS, channels // PARTITIONS, taps), w.dtype)
    for m in range(filters // PARTITIONS):
        for k in range(channels // PARTITIONS):
            rows = flat[m * PARTITIONS : (m + 1) * PARTITIONS, k * PARTITIONS : (k + 1) * PARTITIONS, :]
            nisa.dma_copy(dst=weights[:, :, m, k, :], src=rows)
            for tap in range(taps):
                turned = bank(PARTITIONS, PARTITIONS, w.dtype)
                nisa.nc_transpose(dst=turned, data=weights[:, :, m, k, tap])
                nisa.tensor_copy(dst=weights[:, :, m, k, tap], src=copied(turned))
    return weights


def row_of_products(image: Any, weights: Any, y: int) -> Any:
    """An output row of 128 channels, in PSUM: image [C, H, W], weights [128, 128, C / 128, 9] -> [128, W - 2]."""
    channels, _, width = image.shape
    side = int(weights.shape[-1] ** 0.5)
    total = bank(PARTITIONS, width - side + 1)
    for k in range(channels // PARTITIONS):
        for i in range(side):
            pixels = load(image[k * PARTITIONS : (k + 1) * PARTITIONS, y + i, :])
            for j in range(side):
                moving = pixels[:, j : j + width - side + 1]
                nisa.nc_matmul(dst=total, stationary=weights[:, :, k, i * side + j], moving=moving)
    return total


# ---- trn1: two rows at a time ------------------------------------------------------------------------------------


@nki.jit
def conv_by_strips(x: Any, w: Any, bias: Any, pool: int) -> Any:
    """cs149-1-conv-float16-p1 and -p2: as many output rows as a PSUM bank takes, all output channels at once.

    Dimensions: x [B, C, H, W], w [M, C, 3, 3], bias [M] -> [B, M, H' / pool, W' / pool].

    Pseudocode, for each image and strip of R output rows (two of 222 columns):
        for each 128 input channels:
            load the R + 2 rows under the strip, one DMA a row
            for each tap: copy the R shifted rows side by side  # [128, R W'], shared by all output channels
                for each 128 output channels: transpose its weights, copy them out, accumulate a product
        for each 128 output channels: copy the sums out, add the bias, pool, store row by row
    """
    images, channels, height, width = x.shape
    filters, side = w.shape[0], w.shape[2]
    rows, columns = height - side + 1, width - side + 1
    strip = min(rows, BANK // columns)
    out = nl.ndarray((images, filters, rows // pool, columns // pool), dtype=x.dtype, buffer=nl.shared_hbm)
    taps, biases = load_weights(w), []
    for m in range(filters // PARTITIONS):
        biases.append(load(bias.reshape((filters, 1))[m * PARTITIONS : (m + 1) * PARTITIONS, :]))
    for image in range(images):
        for y in range(0, rows, strip):
            totals = [bank(PARTITIONS, strip * columns) for _ in taps]
            for k in range(channels // PARTITIONS):
                under = load_rows(x[image, k * PARTITIONS : (k + 1) * PARTITIONS, y : y + strip + side - 1])
                for tap in range(side * side):
                    pixels = shifted_rows(under, strip, divmod(tap, side), columns)
                    for total, weights in zip(totals, taps):
                        multiply(total, weights[:, :, k, tap], pixels)
            for m in range(filters // PARTITIONS):
                place = out[image, m * PARTITIONS : (m + 1) * PARTITIONS]
                store_strip(place[:, y // pool : (y + strip) // pool, :], totals[m], biases[m], pool)
    return out


def load_weights(w: Any) -> list[Any]:
    """For each 128 output channels a tile [128, 128 input channels, C / 128, 9], as it lies in HBM."""
    filters, channels, side, _ = w.shape
    flat = w.reshape((filters, channels, side * side))
    tiles = []
    for m in range(filters // PARTITIONS):
        tile = new((PARTITIONS, PARTITIONS, channels // PARTITIONS, side * side), w.dtype)
        for k in range(channels // PARTITIONS):
            source = flat[m * PARTITIONS : (m + 1) * PARTITIONS, k * PARTITIONS : (k + 1) * PARTITIONS, :]
            nisa.dma_copy(dst=tile[:, :, k, :], src=source)
        tiles.append(tile)
    return tiles


def load_rows(window: Any) -> Any:
    """A tile [128, R, W] loaded by R DMAs."""
    tile = new(window.shape, window.dtype)
    for r in range(window.shape[1]):
        nisa.dma_copy(dst=tile[:, r, :], src=window[:, r, :])
    return tile


def shifted_rows(rows: Any, count: int, tap: tuple[int, int], columns: int) -> Any:
    """[128, count * columns]: `count` rows from the tap's row and column on, copied one by one."""
    tile = new((PARTITIONS, count, columns), rows.dtype)
    for r in range(count):
        nisa.tensor_copy(dst=tile[:, r, :], src=rows[:, r + tap[0], tap[1] : tap[1] + columns])
    return tile.reshape((PARTITIONS, count * columns))


def multiply(total: Any, weights: Any, pixels: Any) -> None:
    """total[M, N] += weights[M, K] pixels[K, N]: what nl.matmul makes of operands in this order."""
    turned = bank(PARTITIONS, PARTITIONS, weights.dtype)
    nisa.nc_transpose(dst=turned, data=weights)
    nisa.nc_matmul(dst=total, stationary=copied(turned), moving=pixels)


def store_strip(out: Any, total: Any, bias: Any, pool: int) -> None:
    """out[128, R / pool, W' / pool] = the pooled sums of a strip, row by row; total [128, R W'], bias [128, 1].

    Pseudocode: every row is copied out of the strip before the bias is added. With pooling, the larger of two rows is
    split into even and odd columns by two copies, and the larger of these is stored.
    """
    columns = out.shape[2] * pool
    sums = copied(total, out.dtype)
    for r in range(out.shape[1]):
        rows = []
        for p in range(pool):
            start = (r * pool + p) * columns
            rows.append(add_column(copied(sums[:, start : start + columns]), bias))
        result = rows[0]
        if pool > 1:
            largest = pair(rows[0], nl.maximum, rows[1])
            result = pair(copied(largest[:, 0::2]), nl.maximum, copied(largest[:, 1::2]))
        nisa.dma_copy(dst=out[:, r, :], src=result)


def add_column(tile: Any, column: Any) -> Any:
    """A new tile with the column added to every column."""
    result = new(tile.shape, tile.dtype)
    nisa.tensor_scalar(dst=result, data=tile, op0=nl.add, operand0=column)
    return result


def case(kernel: Any, pool: int) -> Case:
    """The larger image of the exercise's performance test."""
    x = np.zeros((1, 256, 224, 224), np.float16)
    w = np.zeros((256, 256, 3, 3), np.float16)
    return Case(kernel, (x, w, np.zeros(256, np.float16), pool), host_us)


for size in (1, 2):
    row(f"cs149-2-conv-float16-p{size}", lambda size=size: case(conv_by_rows, size))
    row(f"cs149-1-conv-float16-p{size}", lambda size=size: case(conv_by_strips, size))
