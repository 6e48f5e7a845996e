"""Kernels with one fault each, which newcomers make. Golden texts name their lines. Tests nothing.

Each writes into its first argument before the fault, so that tests see whether the caller's array stays untouched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors

f32 = np.float32


def load(source: Any) -> Any:
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def store(tile: Any) -> Any:
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=tile)
    return result


def overwrite(x: Any) -> Any:
    """Tile with x; x itself is zeroed."""
    tile = load(x)
    zeros = nl.zeros(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=zeros)
    return tile


@nki.jit
def too_many_partitions(x):
    overwrite(x)
    tile = nl.ndarray((256, 4), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    return store(tile)


@nki.jit
def wrong_memory(x):
    overwrite(x)
    doubled = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=doubled, data=x, op0=nl.multiply, operand0=2.0)
    return store(doubled)


@nki.jit
def shape_mismatch(x, y):
    left = overwrite(x)
    right = load(y)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=left, data2=right, op=nl.add)
    return store(total)


@nki.jit
def matmul_too_wide(x, y):
    stationary = overwrite(x)
    moving = load(y)
    product = nl.ndarray((128, 640), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=stationary, moving=moving)
    result = nl.ndarray((128, 640), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=product)
    return store(result)


@nki.jit
def sbuf_overflow(x):
    overwrite(x)
    weights = nl.ndarray((128, 40000), dtype=nl.float32, buffer=nl.sbuf)
    hidden = nl.ndarray((128, 40000), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=weights, value=1.0)
    nisa.memset(dst=hidden, value=1.0)
    nisa.tensor_tensor(dst=hidden, data1=hidden, data2=weights, op=nl.add)
    return store(hidden)


@nki.jit
def psum_overflow(x, y):
    stationary = overwrite(x)
    moving = load(y)
    products = []
    for _ in range(9):
        product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=stationary, moving=moving)
        products.append(product)
    total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    for product in products:
        nisa.tensor_tensor(dst=total, data1=total, data2=product, op=nl.add)
    return store(total)


@nki.jit
def slice_out_of_range(x):
    tile = overwrite(x)
    return store(tile[:, 0:600])


@nki.jit
def unknown_keyword(x):
    tile = overwrite(x)
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.exp, data=tile, biass=1.0)
    return store(result)


@nki.jit
def never_written(x):
    tile = overwrite(x)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=total, op=nl.add)
    return store(tile)


@nki.jit
def result_on_chip(x):
    tile = overwrite(x)
    return tile  # noqa: RET504


@dataclass(frozen=True)
class Wrong:
    """A wrong kernel, the shapes of its arguments, and what is right about its error.

    line: a piece of the faulty line. words: what the text must say. target: `None` for the default.
    """

    kernel: Any
    error: type[errors.NkiError]
    line: str
    words: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...] = ((128, 512),)
    target: str | None = None

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)

    def arrays(self) -> list[np.ndarray]:
        """Fresh arguments."""
        return [np.ones(shape, f32) for shape in self.shapes]


SQUARE, ROW, WIDE = (128, 128), (128, 512), (128, 640)

WRONG = (
    Wrong(
        too_many_partitions,
        errors.PartitionLimitError,
        "tile = nl.ndarray((256",
        ("256", "128 partitions on trn3"),
    ),
    Wrong(wrong_memory, errors.MemoryError_, "data=x", ("`data`", "_hbm", "psum or sbuf", "dma_copy")),
    Wrong(
        shape_mismatch,
        errors.OperandShapeError,
        "data2=right",
        ("`data2`", "[128, 256]", "[128, 512]"),
        (ROW, (128, 256)),
    ),
    Wrong(
        matmul_too_wide,
        errors.LimitError,
        "nisa.nc_matmul(dst=product",
        ("`moving`", "640", "512 on trn2"),
        (SQUARE, WIDE),
        "trn2",
    ),
    Wrong(
        sbuf_overflow,
        errors.CapacityError,
        "memset(dst=hidden",
        ("`hidden`", "`weights`", "160000", "245760 bytes a partition on trn3"),
    ),
    Wrong(
        psum_overflow,
        errors.CapacityError,
        "nisa.nc_matmul(dst=product",
        ("`product`", "2048", "16384 bytes a partition on trn3"),
        (SQUARE, ROW),
    ),
    Wrong(slice_out_of_range, errors.BoundsError, "tile[:, 0:600]", ("`tile`", "600", "512", "0..511")),
    Wrong(unknown_keyword, errors.UnknownKeywordError, "biass=1.0", ("biass", "did you mean `bias`?")),
    Wrong(never_written, errors.UninitializedReadError, "data2=total", ("`data2`", "`total`", "memset")),
    Wrong(result_on_chip, errors.ReturnError, "return tile", ("`tile`", "sbuf", "shared_hbm")),
)
