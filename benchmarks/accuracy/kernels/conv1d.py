"""Depthwise convolution along a row by the Vector engine, one number of the result at a time (a trace of autocomp)."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.samples_steps import PARTITIONS, bank, load, new, zeros


@nki.jit
def conv1d(x: Any, taps: Any, padding: int) -> Any:
    """ac-conv1d-3: everything for an image and 128 channels, then the next.

    Dimensions: x [N, C, W], taps [C, F] -> [N, C, W + 2 padding - F + 1].

    Pseudocode, for each image and 128 channels:
        zeros for the padded image, the filter and the result; load image and filter over them
        for each number of the result: multiply F numbers by the filter; reduce the products
        store
    """
    images, channels, width = x.shape
    count = width + 2 * padding - taps.shape[1] + 1
    out = nl.ndarray((images, channels, count), dtype=x.dtype, buffer=nl.shared_hbm)
    for image in range(images):
        for first in range(0, channels, PARTITIONS):
            tile = slice(first, first + PARTITIONS)
            padded, weights, result = (
                zeros((PARTITIONS, size)) for size in (width + 2 * padding, taps.shape[1], count)
            )
            nisa.dma_copy(dst=padded[:, padding : padding + width], src=x[image, tile, :])
            nisa.dma_copy(dst=weights, src=taps[tile, :])
            convolve(result, padded, weights)
            nisa.dma_copy(dst=out[image, tile, :], src=result)
    return out


@nki.jit
def conv1d_filter_in_psum(x: Any, taps: Any, padding: int) -> Any:
    """ac-conv1d-5: channels outside; the filter is loaded once for all images, and read in PSUM.

    Dimensions as above. The same two instructions for each number of the result.
    """
    images, channels, width = x.shape
    count = width + 2 * padding - taps.shape[1] + 1
    out = nl.ndarray((images, channels, count), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, channels, PARTITIONS):
        tile = slice(first, first + PARTITIONS)
        weights = bank(PARTITIONS, taps.shape[1])
        nisa.tensor_copy(dst=weights, src=load(taps[tile, :]), engine=nisa.engine.vector)
        for image in range(images):
            padded, result = zeros((PARTITIONS, width + 2 * padding)), zeros((PARTITIONS, count))
            nisa.dma_copy(dst=padded[:, padding : padding + width], src=x[image, tile, :])
            convolve(result, padded, weights)
            nisa.dma_copy(dst=out[image, tile, :], src=result)
    return out


def convolve(result: Any, padded: Any, weights: Any) -> None:
    """result[i] = sum over f of padded[i + f] weights[f], a product and a reduction for each i."""
    size = weights.shape[1]
    for i in range(result.shape[1]):
        products = new((PARTITIONS, size))
        nisa.tensor_tensor(dst=products, data1=padded[:, i : i + size], data2=weights, op=nl.multiply)
        nisa.tensor_reduce(dst=result[:, i : i + 1], op=nl.add, data=products, axis=1)


def case(kernel: Any) -> Case:
    """8 images of 512 channels and 2048 numbers, filters of 3, padded by 1 on both sides."""
    return Case(kernel, (np.zeros((8, 512, 2048), np.float32), np.zeros((512, 3), np.float32), 1), host_us)


row("ac-conv1d-3", lambda: case(conv1d))
row("ac-conv1d-5", lambda: case(conv1d_filter_in_psum))
