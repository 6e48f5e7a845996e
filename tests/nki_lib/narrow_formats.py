"""The narrow formats from their bit layouts, as tables of all codes: an oracle that shares nothing with the kernels.

A code is a sign, an exponent field of e bits and a mantissa of m bits; field 0 holds the subnormal numbers. Rounding
finds the neighbours of a value in the sorted table, in float64, where every midpoint is exact: the nearer one, and of
two equally near ones the even code. Beyond the largest value it saturates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """Bits of an element. specials: codes without sign that are NaN or infinite. exponent: OCP's emax."""

    exponent_bits: int
    mantissa_bits: int
    specials: dict[int, float]
    exponent: int

    def magnitudes(self) -> Array:
        """The float64 value of every code without sign."""
        bias = 2 ** (self.exponent_bits - 1) - 1
        codes = np.arange(2 ** (self.exponent_bits + self.mantissa_bits))
        field, mantissa = codes >> self.mantissa_bits, codes % 2**self.mantissa_bits
        fraction = mantissa / 2**self.mantissa_bits + (field > 0)
        values = fraction * 2.0 ** (np.maximum(field, 1) - bias)
        for code, value in self.specials.items():
            values[code] = value
        return values

    def table(self) -> Array:
        """The float64 value of every code."""
        magnitudes = self.magnitudes()
        return np.concatenate([magnitudes, -magnitudes])

    @property
    def largest(self) -> float:
        """The largest finite value."""
        magnitudes = self.magnitudes()
        return float(magnitudes[np.isfinite(magnitudes)].max())

    def encode(self, values: Array) -> Array:
        """The codes of finite float64 values."""
        magnitudes = self.magnitudes()
        finite = magnitudes[: int(np.argmax(magnitudes == self.largest)) + 1]
        size = np.minimum(np.abs(values), self.largest)
        above = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
        middle = (finite[above - 1] + finite[above]) / 2
        even = above - above % 2
        code = np.where(size > middle, above, np.where(size < middle, above - 1, even))
        return (code + np.signbit(values) * len(magnitudes)).astype(np.uint8)


E4M3 = Layout(4, 3, {0x7F: np.nan}, 8)
E5M2 = Layout(5, 2, {0x7C: np.inf, 0x7D: np.nan, 0x7E: np.nan, 0x7F: np.nan}, 15)
E2M1 = Layout(2, 1, {}, 2)
LAYOUTS = {
    "float8_e4m3fn": E4M3,
    "float8_e5m2": E5M2,
    "mxfp8_e4m3": E4M3,
    "mxfp8_e5m2": E5M2,
    "mxfp4_e2m1": E2M1,
}


def scale_values() -> Array:
    """The float64 value of every byte of float8_e8m0fnu."""
    values = 2.0 ** (np.arange(256) - 127)
    values[255] = np.nan
    return values


def quantized_blocks(x: Array, layout: Layout, above: int = 0) -> tuple[Array, Array]:
    """Codes [R, K] and scale bytes [R, K / 32] of float64 rows [R, K]; scales 2^above times those of OCP.

    The codes of a block with a NaN or an infinity, whose byte is 255, mean nothing.
    """
    blocks = x.reshape(x.shape[0], -1, 32)
    most = np.abs(blocks).max(2)
    broken = ~np.isfinite(most)
    exponent = np.frexp(np.where(broken, 1, most))[1] - 1 - layout.exponent + above
    code = np.where(most == 0, 0, np.maximum(exponent + 127, 0))
    values = np.where(broken[..., None], 0, blocks) / 2.0 ** (code[..., None] - 127)
    return layout.encode(values).reshape(x.shape), np.where(broken, 255, code).astype(np.uint8)


def quantized_vectors(x: Array, layout: Layout) -> tuple[Array, Array]:
    """Codes [R, K] and float32 scales [R, 1] of float32 rows: both factors in float32, as the operator says."""
    one = np.float32(1)
    scale = np.abs(x).max(1, keepdims=True) * (one / np.float32(layout.largest))
    scale = np.where(scale < 2.0**-126, one, scale)
    return layout.encode((x * (one / scale)).astype(np.float64)), scale


def unpacked(data: Array) -> Array:
    """4-bit codes of bytes, the lower half first, along the last axis."""
    return np.stack([data & 15, data >> 4], -1).reshape(*data.shape[:-1], -1)


def decoded(codes: Array, scales: Array, layout: Layout) -> Array:
    """Exact float64 values of codes [R, K] with scale bytes [R, K / 32]."""
    with np.errstate(invalid="ignore"):
        return layout.table()[codes] * np.repeat(scale_values()[scales], 32, -1)
