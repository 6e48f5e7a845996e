"""e^x of float32 arrays within one unit of the last place, in NumPy passes.

NumPy's own float32 loop is up to 2.5 units off, its float64 loop takes three times as long. Here x = k ln 2 + r with
|r| <= ln 2 / 2, a polynomial in r, and k added to the exponent bits. Inputs whose result is no normal number go through
float64. The exponential stands in every softmax, so this is the one function that is worth the care.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two parts; the first has few enough bits that its products with small integers are exact.
_LN_2_HIGH = np.float32(0.693359375)
_LN_2_LOW = np.float32(-2.12194440e-4)
# (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, from the highest power down: the minimax polynomial of Cephes' expf.
_POLYNOMIAL = tuple(
    np.float32(c)
    for c in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)
_ONE = np.float32(1)
_MANTISSA_BITS = 23
_SMALLEST, _LARGEST = np.float32(-87), np.float32(88)
"""Between these the result is a normal number."""
_VANISHING = np.float32(-104)
"""Below this it is rounded to 0."""
_ZERO = np.float32(0)


class _Scratch(threading.local):
    """Three arrays of the size that was last needed, so that a call allocates nothing."""

    size = -1
    arrays: tuple[Array, Array, Array]

    def of(self, x: Array) -> tuple[Array, Array, Array]:
        if self.size < x.size:
            self.size = x.size
            n = x.size
            self.arrays = (np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.int32))
        a, b, c = (array[: x.size].reshape(x.shape) for array in self.arrays)
        return a, b, c


_scratch = _Scratch()


def exp(x: Array, out: Array) -> None:
    """e^x; `out` may be `x`. Overflow is infinity, NaN stays NaN."""
    if np.minimum.reduce(x, None) >= _SMALLEST and np.maximum.reduce(x, None) <= _LARGEST:
        _normal(x, out)
        return
    gone = x < _VANISHING
    if not np.array_equal(gone, ~(x >= _SMALLEST)) or not np.maximum.reduce(x, None) <= _LARGEST:
        out[...] = np.exp(x, dtype=np.float64)
        return
    # What a mask leaves: normal results and zeros.
    _normal(np.maximum(x, _SMALLEST), out)
    np.copyto(out, _ZERO, where=gone)


def _normal(x: Array, out: Array) -> None:
    """e^x where all results are normal numbers."""
    k, r, shift = _scratch.of(x)
    np.multiply(x, _LOG2_E, k)
    np.rint(k, k)
    np.multiply(k, _LN_2_HIGH, r)
    np.subtract(x, r, r)
    np.multiply(k, _LN_2_LOW, out)
    np.subtract(r, out, r)
    np.multiply(r, _POLYNOMIAL[0], out)
    for coefficient in _POLYNOMIAL[1:]:
        np.add(out, coefficient, out)
        np.multiply(out, r, out)
    np.multiply(out, r, out)
    np.add(out, r, out)
    np.add(out, _ONE, out)
    shift[...] = k
    np.left_shift(shift, _MANTISSA_BITS, shift)
    bits = out.view(np.int32)
    np.add(bits, shift, bits)
