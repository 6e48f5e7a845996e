"""The vision kernels of nki-samples: adaptive average pooling, nearest resizing, select-and-scatter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.samples_steps import PARTITIONS, load, new, zeros

LARGEST_WINDOW = 128
"""Side of the pieces that a pooling window is cut into."""

# ---- adaptive average pooling ------------------------------------------------------------------------------------


@nki.jit
def adaptive_average(x: Any, side: int) -> Any:
    """ns-aap-*: one window of one tile of images at a time: load it, sum it, divide.

    Dimensions: x [N, C, H, W] -> [N C, side, side]; N C is cut into tiles of 128 images.

    Pseudocode, for each tile and window:
        total = 0
        for each piece of the window, at most 128 x 128:
            load it                                       # [128, h, w]: a piece of w numbers for each of h rows
            total += its sum
        result[window] = total / (h w)
    The original loads every piece of a tile of images into the same tile. Loads would then wait for sums, which takes
    longer than was measured: its compiler gave each load a place of its own, and so does this.
    """
    images, height, width = x.shape[0] * x.shape[1], x.shape[2], x.shape[3]
    flat = x.reshape((images, height, width))
    out = nl.ndarray((images, side, side), dtype=x.dtype, buffer=nl.shared_hbm)
    rows_of, columns_of = windows(height, side), windows(width, side)
    for start in range(0, images, PARTITIONS):
        tile = slice(start, min(start + PARTITIONS, images))
        results = zeros((tile.stop - tile.start, side, side), x.dtype)
        for i in range(side):
            for j in range(side):
                total = sum_of_window(flat[tile, rows_of[i], columns_of[j]])
                count = float(flat[0, rows_of[i], columns_of[j]].size)
                nisa.tensor_scalar(dst=results[:, i, j], data=total, op0=nl.multiply, operand0=1 / count)
        nisa.dma_copy(dst=out[tile, :, :], src=results)
    return out


def windows(length: int, count: int) -> list[slice]:
    """The ranges that `count` results average over."""
    return [slice(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


def sum_of_window(window: Any) -> Any:
    """The sums [images, 1] of a window in HBM [images, h, w], piece by piece."""
    total = zeros((window.shape[0], 1))
    for i in range(0, window.shape[1], LARGEST_WINDOW):
        for j in range(0, window.shape[2], LARGEST_WINDOW):
            rows = slice(i, min(i + LARGEST_WINDOW, window.shape[1]))
            columns = slice(j, min(j + LARGEST_WINDOW, window.shape[2]))
            piece = load(window[:, rows, columns])
            part = new(total.shape, window.dtype)
            nisa.tensor_reduce(dst=part, op=nl.add, data=piece, axis=(1, 2))
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    return total


# ---- nearest resizing --------------------------------------------------------------------------------------------


@nki.jit
def resize_nearest(x: Any, height: int, width: int) -> Any:
    """ns-rn-*: one pixel of the result at a time: load the nearest pixel of all images, store it.

    Dimensions: x [B, H, W, C] -> [B, height * width, C]. A load and a store of B rows of C numbers for each pixel.
    This is the kernel of 05c0769, when the thresholds were set; later ones gather 128 pixels at a time.
    """
    images, rows, columns, channels = x.shape
    flat = x.reshape((images, rows * columns, channels))
    out = nl.ndarray((images, height * width, channels), dtype=x.dtype, buffer=nl.shared_hbm)
    for pixel in range(height * width):
        i, j = pixel // width * rows // height, pixel % width * columns // width
        nisa.dma_copy(dst=out[:, pixel, :], src=load(flat[:, i * columns + j, :]))
    return out


# ---- select and scatter ------------------------------------------------------------------------------------------


@nki.jit
def select_and_scatter(x: Any, source: Any) -> Any:
    """ns-sas: the gradient of max pooling with windows of 3 x 3, stride 2, padding 1; 64 channels, two images a tile.

    Dimensions: x [N, 64, H, W], source [N, 64, H / 2, W / 2] -> as x.

    Pseudocode, for each pair of images:
        load both, padded with the lowest number
        for each row of windows: mark the first largest element of each window
        load source
        for each of the 9 places of a window: scatter source where it is marked; store [128, H, W] in scratch HBM
        for each of them: load it back and add it up
        store both images
    """
    images, channels, height, width = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    shape = (PARTITIONS, height, width)
    for first in range(0, images, 2):
        marks = mark_largest(x[first : first + 2])
        values = new((PARTITIONS, height // 2, width // 2), x.dtype)
        for image in range(2):
            nisa.dma_copy(dst=values[image * channels : (image + 1) * channels], src=source[first + image])
        scattered = [nl.ndarray(shape, dtype=x.dtype, buffer=nl.private_hbm) for _ in range(9)]
        for place in range(9):
            i, j = divmod(place, 3)
            tile = zeros((PARTITIONS, height + 2, width + 2), x.dtype)
            target = tile[:, i : i + height - 1 : 2, j : j + width - 1 : 2]
            nisa.tensor_tensor(dst=target, data1=values, data2=marks[:, :, :, place], op=nl.multiply)
            nisa.dma_copy(dst=scattered[place], src=tile[:, 1 : height + 1, 1 : width + 1])
        total = zeros(shape, x.dtype)
        for tensor in scattered:
            nisa.tensor_tensor(dst=total, data1=total, data2=load(tensor), op=nl.add)
        for image in range(2):
            nisa.dma_copy(dst=out[first + image], src=total[image * channels : (image + 1) * channels])
    return out


def mark_largest(images: Any) -> Any:
    """1 at the first largest element of each window, else 0: [2, 64, H, W] -> uint8 [128, H / 2, W / 2, 9]."""
    _, channels, height, width = images.shape
    padded = new((PARTITIONS, height + 2, width + 2), images.dtype)
    nisa.memset(dst=padded, value=float(np.finfo(np.float32).min))
    for image in range(2):
        rows = slice(image * channels, (image + 1) * channels)
        nisa.dma_copy(dst=padded[rows, 1 : height + 1, 1 : width + 1], src=images[image])
    marks = new((PARTITIONS, height // 2, width // 2, 9), nl.uint8)
    for row_of_windows in range(height // 2):
        mark_row(marks[:, row_of_windows], padded[:, 2 * row_of_windows : 2 * row_of_windows + 3, :])
    return marks


def mark_row(marks: Any, rows: Any) -> None:
    """marks [128, w, 9] of one row of windows over rows [128, 3, 2 w + 2].

    Pseudocode: copy the windows out, reduce with max, compare, number the elements of a window, replace the numbers
    of smaller elements by 9, reduce with min, compare.
    """
    count = marks.shape[1]
    shape, columns = (PARTITIONS, count, 9), (PARTITIONS, count, 1)
    elements = new((PARTITIONS, count, 3, 3), rows.dtype)
    pattern = [list(rows.get_pattern()[0]), [2, count], [rows.shape[2], 3], [1, 3]]
    nisa.tensor_copy(dst=elements, src=rows.ap(pattern, offset=rows.offset))
    elements = elements.reshape(shape)
    largest, first = new(columns, rows.dtype), new(columns, nl.uint32)
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=elements, axis=2, keepdims=True)
    is_largest = new(shape, nl.uint8)
    nisa.tensor_tensor(dst=is_largest, data1=elements, data2=largest.broadcast(2, 9), op=nl.equal)
    numbers, chosen = new(shape, nl.uint32), new(shape, nl.uint32)
    nisa.iota(dst=numbers, pattern=[[0, count], [1, 9]])
    nisa.memset(dst=chosen, value=9)
    nisa.tensor_copy_predicated(dst=chosen, src=numbers, predicate=is_largest)
    nisa.tensor_reduce(dst=first, op=nl.minimum, data=chosen, axis=2, keepdims=True)
    nisa.tensor_tensor(
        dst=marks, data1=first.broadcast(2, 9), data2=numbers, op=nl.equal, engine=nisa.engine.vector
    )


# ---- rows --------------------------------------------------------------------------------------------------------


def pooling(shape: tuple[int, ...], side: int, dtype: Any) -> Case:
    """One row of the pooling test."""
    return Case(adaptive_average, (np.zeros(shape, dtype), side), host_us)


for shape, side, dtype in (
    ((1, 64, 56, 56), 7, np.float32),
    ((2, 128, 28, 28), 7, np.float32),
    ((1, 256, 14, 14), 7, np.float16),
    ((4, 64, 56, 56), 7, np.float32),
    ((2, 128, 28, 28), 14, np.float32),
    ((1, 512, 7, 7), 1, np.float32),
    ((8, 64, 32, 32), 4, np.float16),
    ((2, 2048, 32, 32), 3, np.float32),
    ((2, 64, 256, 256), 1, np.float32),
):
    name = "x".join(map(str, shape))
    row(f"ns-aap-{name}-{side}", lambda shape=shape, side=side, dtype=dtype: pooling(shape, side, dtype))

for name, images, dtype in (
    ("float3210", 10, np.float32),
    ("float161", 1, np.float16),
    ("bfloat161", 1, ml_dtypes.bfloat16),
):
    row(
        f"ns-rn-{name}",
        lambda images=images, dtype=dtype: Case(
            resize_nearest, (np.zeros((images, 30, 20, 1280), dtype), 59, 38), host_us
        ),
    )

row(
    "ns-sas",
    lambda: Case(
        select_and_scatter,
        (np.zeros((8, 64, 112, 112), np.float32), np.zeros((8, 64, 56, 56), np.float32)),
        host_us,
    ),
)
