"""Random numbers: rand, dropout and random_seed. The same program gives the same numbers in every run."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.dtypes import DType, as_dtype
from nki.enums import nc_version
from nki.language.creation import ndarray
from nki.language.instructions import nisa
from nki.language.memory import sbuf, target
from nki.language.operands import as_kind, as_number, fresh, require_tile
from nki.tensor import NkiTensor

_WORD_BITS = 32
_FRACTION_BITS = 24  # what float32 has room for
_TFLOAT32_BITS = 11
_NOT_DIRECT = (
    dtypes.float8_e4m3fn,
    dtypes.float8_e8m0fnu,
    dtypes.bool_,
)  # types that `nisa.rand2` does not write


def rand(shape: Any, dtype: Any, buffer: Any = sbuf, name: str = "") -> NkiTensor:
    """A new tensor of numbers uniform in [0, 1), of the Vector engine's generator.

    They come from `nisa.rand2` on trn3 and from `nisa.rng` before. In a narrow dtype the largest is the last value
    below 1, where rounding would give 1 itself.
    """
    out = ndarray(shape, as_dtype(dtype), buffer, name)
    if out.buffer.on_chip:
        _fill(out)
        return out
    machine = target()
    height, width = machine.pmax, machine.psum_bank_fmax
    count = out.shape[0] if out.ndim > 1 else 1
    rows = out.reshape((count, out.size // count))
    for row in range(0, count, height):
        for column in range(0, rows.shape[1], width):
            part = rows[row : min(row + height, count), column : min(column + width, rows.shape[1])]
            tile = fresh(part.shape, out.dtype, name="numbers")
            _fill(tile)
            nisa.dma_copy(dst=part, src=tile)
    return out


def _fill(tile: NkiTensor) -> None:
    """Random numbers into a tile in SBUF or PSUM."""
    high = _end(tile.dtype)
    if target().version >= nc_version.gen4:
        direct = tile.dtype not in _NOT_DIRECT
        numbers = tile if direct else fresh(tile.shape, dtypes.float32, name="wide")
        nisa.rand2(numbers, min=0.0, max=high)
        if not direct:
            nisa.tensor_copy(tile, numbers)
        return
    words = fresh(tile.shape, dtypes.uint32, name="words")
    nisa.rng(words)
    nisa.tensor_scalar(words, words, op0="right_shift", operand0=_WORD_BITS - _FRACTION_BITS)
    nisa.tensor_scalar(tile, words, op0="multiply", operand0=high * 2.0**-_FRACTION_BITS)


def _end(dtype: DType) -> float:
    """The number that fractions are multiplied with, so that none is rounded to 1."""
    if dtype == dtypes.tfloat32:
        return 1.0 - 2.0**-_TFLOAT32_BITS
    if dtype == dtypes.float32 or not dtype.is_float:
        return 1.0
    below = np.ones((), dtype.numpy).view(f"u{dtype.itemsize}") - 1  # the bits of the last value before 1
    return float(below.astype(f"u{dtype.itemsize}").view(dtype.numpy))


def dropout(x: Any, rate: Any, dtype: Any = None) -> NkiTensor:
    """`x` with elements replaced by 0 with probability `rate`, a number or a column; what is kept is not scaled."""
    tile = require_tile("dropout", x)
    number = as_number(rate)
    share = require_tile("dropout", rate, "rate") if number is None else number
    kind = as_kind(dtype, tile.dtype)
    if kind != tile.dtype:
        cast = fresh(tile.shape, kind, name="cast")
        nisa.tensor_copy(cast, tile)
        tile = cast
    out = fresh(tile.shape, kind)
    nisa.dropout(out, tile, prob=share)
    return out


def random_seed(seed: Any) -> None:
    """Start the Vector engine's random numbers anew from a tensor [1, 1] with a 32-bit value."""
    nisa.set_rng_seed(require_tile("random_seed", seed, "seed"))
