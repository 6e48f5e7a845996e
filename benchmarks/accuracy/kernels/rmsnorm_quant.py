"""RMSNorm and quantisation to fp8, the kernel that design-rmsnorm-quant.rst takes apart, on the rows of one core."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, Figure, device_us, duration_ns, row
from benchmarks.accuracy.kernels.probe_figures import rhythm_ns, with_table_ns

ROWS = 128
COLUMNS = 512
"""What one product spreads of gamma: a PSUM bank."""

BANKS = 8
CORES = 2
SCALE_BYTES = 4
LARGEST_FP8 = 240.0
LEAST_SCALE = 1e-6
EPSILON = 1e-6


@nki.jit
def rmsnorm_quant(hidden: Any, gamma: Any) -> Any:
    """Each row of hidden divided by its root mean square, times gamma, to fp8 with the row's scale at its end.

    Dimensions: hidden [rows, h] bfloat16, gamma [1, h] bfloat16 -> [rows, h + 4] float8_e4m3, of which the last four
    bytes are a float32. Rows rq-*.

    Pseudocode:
        for each 128 rows:
            load x and gamma
            inverse = rsqrt(sum(x * x) / h + epsilon)       # Scalar engine, two passes
            for each 512 columns:                           # gamma comes by way of PSUM, a bank a product
                x = x * inverse * gamma
            scale = max(max |x| / 240, 1e-6)                # Vector, Scalar, Vector engine
            store fp8(x / scale) and scale
    """
    rows, width = hidden.shape
    out = nl.ndarray((rows, width + SCALE_BYTES), dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    zero, epsilon = fill((ROWS, 1), nl.float32, 0.0), fill((ROWS, 1), nl.bfloat16, EPSILON)
    ones = fill((1, ROWS), nl.bfloat16, 1.0)
    for start in range(0, rows, ROWS):
        stop = min(start + ROWS, rows)
        tile = new((stop - start, width), hidden.dtype)
        nisa.dma_copy(dst=tile, src=hidden[start:stop, :])
        normalise(tile, gamma, zero, epsilon, ones)
        quantised, scale = quantise(tile, zero)
        nisa.dma_copy(dst=out[start:stop, :width], src=quantised)
        nisa.dma_copy(dst=out[start:stop, width:], src=scale.view(nl.float8_e4m3))
    return out


def new(shape: tuple[int, int], dtype: Any) -> Any:
    """A tile in SBUF."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def fill(shape: tuple[int, int], dtype: Any, value: float) -> Any:
    """A tile in SBUF with one number everywhere."""
    tile = new(shape, dtype)
    nisa.memset(dst=tile, value=value)
    return tile


def normalise(tile: Any, gamma: Any, zero: Any, epsilon: Any, ones: Any) -> None:
    """tile *= gamma / root mean square of its rows. Dimensions: tile [m, h], gamma [1, h] in HBM, ones [1, 128]."""
    m, width = tile.shape
    line = new(gamma.shape, gamma.dtype)
    nisa.dma_copy(dst=line, src=gamma)
    squares, inverse = new(tile.shape, nl.float32), new((m, 1), nl.float32)
    nisa.activation_reduce(
        dst=squares,
        op=nl.square,
        data=tile,
        reduce_op=nl.add,
        reduce_res=inverse,
        bias=zero[:m, :],
        scale=1.0,
    )
    nisa.activation(dst=inverse, op=nl.rsqrt, data=inverse, bias=epsilon[:m, :], scale=1.0 / width)
    for first in range(0, width, COLUMNS):
        part = slice(first, min(first + COLUMNS, width))
        spread = nl.ndarray((m, COLUMNS), dtype=nl.float32, buffer=nl.psum)[:, : part.stop - first]
        nisa.nc_matmul(dst=spread, stationary=ones[:, :m], moving=line[:, part])
        nisa.scalar_tensor_tensor(
            dst=tile[:, part],
            data=tile[:, part],
            op0=nl.multiply,
            operand0=inverse,
            op1=nl.multiply,
            operand1=spread,
        )


def quantise(tile: Any, zero: Any) -> tuple[Any, Any]:
    """The tile [m, h] in fp8, and what its rows [m, 1] must be multiplied by to get it back."""
    m = tile.shape[0]
    absolute, scale, factor = new(tile.shape, tile.dtype), new((m, 1), nl.float32), new((m, 1), nl.float32)
    quantised = new(tile.shape, nl.float8_e4m3)
    nisa.tensor_scalar_reduce(
        dst=absolute, data=tile, op0=nl.abs, operand0=0.0, reduce_op=nl.maximum, reduce_res=scale
    )
    nisa.activation(dst=scale, op=nl.copy, data=scale, scale=1.0 / LARGEST_FP8, bias=zero[:m, :])
    nisa.tensor_scalar(dst=scale, data=scale, op0=nl.maximum, operand0=LEAST_SCALE)
    nisa.reciprocal(dst=factor, data=scale)
    nisa.tensor_scalar(dst=quantised, data=tile, op0=nl.multiply, operand0=factor, engine=nisa.vector_engine)
    return quantised, scale


def case(length: int, width: int, figure: Figure = device_us) -> Case:
    """The half of a sequence that one of the two cores has to do."""
    hidden = np.zeros((length // CORES, width), ml_dtypes.bfloat16)
    return Case(rmsnorm_quant, (hidden, np.zeros((1, width), ml_dtypes.bfloat16)), figure)


for _length in (2048, 32_768):
    for _width in (8192, 16_384):
        row(f"rq-{_length}-{_width}", lambda length=_length, width=_width: case(length, width))

row("rq-160", lambda: case(160, 16_384))
row("rq-act", lambda: case(160, 16_384, with_table_ns("activation_reduce", "activation")))
row("rq-absmax", lambda: case(160, 16_384, duration_ns("tensor_scalar_reduce")))
row("rq-quant", lambda: case(160, 16_384, duration_ns("tensor_scalar", 1)))
row("rq-stt", lambda: case(160, 16_384, rhythm_ns("scalar_tensor_tensor")))
row("rq-mmcold", lambda: case(160, 16_384, rhythm_ns("nc_matmul", 0, BANKS - 1)))
