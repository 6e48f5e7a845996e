"""Microscaling written out by hand: tables of values, packing, and where scales lie. Tests nothing."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.isa.tiles import load

LARGEST = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}
TYPES = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
    "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}


def fp8_value(code: int, exponent_bits: int, mantissa_bits: int, bias: int) -> float:
    """A number from its sign, exponent and mantissa; the codes for infinity and NaN are not asked for."""
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = code & (1 << mantissa_bits) - 1
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


def value(dtype: str, code: int) -> float:
    """The value of one lane."""
    if dtype == "float4_e2m1fn_x4":
        return fp8_value(code, 2, 1, 1)
    return fp8_value(code, 4, 3, 7) if dtype == "float8_e4m3fn_x4" else fp8_value(code, 5, 2, 15)


def finite(dtype: str, codes: Any) -> Any:
    """The codes, those of NaN and infinity exchanged for zero."""
    if dtype == "float4_e2m1fn_x4":
        return codes & 15
    if dtype == "float8_e4m3fn_x4":
        return np.where(codes & 127 == 127, 0, codes)
    return np.where(codes & 124 == 124, 0, codes)


def packed(dtype: str, codes: Any) -> Any:
    """Codes [rows, columns, 4] as unsigned integers, lane 0 in the lowest bits (rule 115)."""
    width = 4 if dtype == "float4_e2m1fn_x4" else 8
    out = np.zeros(codes.shape[:2], np.uint16 if width == 4 else np.uint32)
    for lane in range(4):
        out |= codes[..., lane].astype(out.dtype) << out.dtype.type(lane * width)
    return out


def unpacked(dtype: str, words: Any) -> Any:
    """The codes of packed integers."""
    width = 4 if dtype == "float4_e2m1fn_x4" else 8
    return np.stack([words >> (lane * width) & (1 << width) - 1 for lane in range(4)], -1).astype(np.uint8)


def spread(scales: Any, partitions: int, offset: int = 0, columns: int | None = None, fill: int = 99) -> Any:
    """Scales [P/8, F] in a tile of all partitions: row 4q + i in partition 32q + i + offset (rule 116)."""
    tile = np.full((partitions, columns or scales.shape[1]), fill, np.uint8)
    for group in range(partitions // 8):
        tile[group // 4 * 32 + group % 4 + offset, : scales.shape[1]] = scales[group]
    return tile


def quantized(values: Any, dtype: str) -> tuple[Any, Any]:
    """Codes [P, F, 4] and scale bytes [P/8, F] of the documented formula, group by group (rules 116 to 118)."""
    rows, columns = values.shape[0], values.shape[1] // 4
    codes = np.zeros((rows, columns, 4), np.uint8)
    scales = np.zeros((rows // 8, columns), np.uint8)
    for g in range(rows // 8):
        for c in range(columns):
            group = values[8 * g : 8 * g + 8, 4 * c : 4 * c + 4].astype(np.float64)
            most = np.abs(group).max()
            exponent = -127 if most == 0 else math.floor(math.log2(most)) - (LARGEST[dtype] - 1)
            exponent = max(exponent, -127)
            scales[g, c] = exponent + 127
            with np.errstate(under="ignore"):
                codes[8 * g : 8 * g + 8, c] = (group / 2.0**exponent).astype(TYPES[dtype]).view(np.uint8)
    return codes, scales


def dequantized(dtype: str, codes: Any, scales: Any) -> Any:
    """Float64 values [P, F, 4]."""
    table = np.array([value(dtype, code) for code in range(16 if "4_e2" in dtype else 256)])
    return table[codes] * np.repeat(2.0 ** (scales.astype(np.float64) - 127), 8, axis=0)[..., None]


def load_packed(words: Any, dtype: str) -> Any:
    """A tile of a packed type from an HBM tensor of unsigned integers."""
    return load(words).view(getattr(nl, dtype))


def fresh_scales(shape: tuple[int, ...], fill: int = 99) -> Any:
    """A scale tile that holds one number everywhere."""
    tile = nl.ndarray(shape, dtype=nl.uint8, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=fill)
    return tile
