"""`nki.language`, imported as `nl`: tensors, dtypes, memories, ranges, and functions on tiles.

A function of `nl` is a short recipe over the instructions of `nki.isa`, and the name of an operator is its function:
`nisa.tensor_tensor(..., op=nl.add)`. Read `creation.py` for tensors, `binary.py` for the way operators work.
"""

from __future__ import annotations

from typing import Any

from nki.dtypes import (
    DType,
    bfloat16,
    bool_,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from nki.language.binary import (
    abs_max,
    abs_min,
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    divide,
    equal,
    greater,
    greater_equal,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    not_equal,
    power,
    right_shift,
    subtract,
)
from nki.language.constants import shared_constant, shared_identity_matrix
from nki.language.creation import empty_like, full, ndarray, ones, zeros, zeros_like
from nki.language.device_print import device_print
from nki.language.gathering import gather_flattened
from nki.language.linear import matmul, transpose
from nki.language.loops import dynamic_range, fori_loop, no_reorder, while_loop
from nki.language.memory import (
    MemoryRegion,
    hbm,
    is_hbm,
    is_on_chip,
    is_psum,
    is_sbuf,
    private_hbm,
    psum,
    sbuf,
    shared_hbm,
    tile_size,
)
from nki.language.memory import (
    _TileSize as _TileSize,
)
from nki.language.normalization import rms_norm, softmax
from nki.language.program import nc, num_programs, program_id, program_ndim, spmd_dim
from nki.language.random_numbers import dropout, rand, random_seed
from nki.language.ranges import affine_range, ds, range, sequential_range, static_range
from nki.language.reductions import all, max, mean, min, prod, sum, var
from nki.language.removed import removed
from nki.language.rounding import ceil, floor, fmod, mod, trunc
from nki.language.selection import broadcast_to, expand_dims, where
from nki.language.tokens import average, bypass, prelu
from nki.language.transfer import load, load_transpose2d, store
from nki.language.trigonometry import cos, sin, tan
from nki.language.unary import (
    abs,
    arctan,
    copy,
    erf,
    erf_dx,
    exp,
    gelu,
    gelu_apprx_sigmoid,
    gelu_apprx_sigmoid_dx,
    gelu_apprx_tanh,
    gelu_dx,
    invert,
    log,
    logical_not,
    mish,
    negative,
    reciprocal,
    relu,
    rsqrt,
    sigmoid,
    sign,
    silu,
    silu_dx,
    softplus,
    sqrt,
    square,
    tanh,
)
from nki.objects import NKIObject
from nki.tensor import NkiTensor

bool = bool_

# fmt: off
__all__ = [
    "abs", "abs_max", "abs_min", "add", "affine_range", "all", "arctan", "average", "bfloat16", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bool", "bool_", "broadcast_to", "bypass", "ceil", "copy", "cos",
    "device_print", "divide", "dropout", "ds", "dynamic_range", "DType", "empty_like", "equal", "erf", "erf_dx", "exp",
    "expand_dims",
    "float16", "float32", "float4_e2m1fn_x4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fn_x4", "float8_e5m2",
    "float8_e5m2_x4", "float8_e8m0fnu", "floor", "fmod", "fori_loop", "full", "gather_flattened", "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx", "gelu_apprx_tanh", "gelu_dx", "greater", "greater_equal", "hbm", "int16", "int32",
    "int8", "invert", "is_hbm", "is_on_chip", "is_psum", "is_sbuf", "left_shift", "less", "less_equal", "load",
    "load_transpose2d", "log", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "max",
    "maximum", "mean", "MemoryRegion", "min", "minimum", "mish", "mod", "multiply", "nc", "ndarray", "negative",
    "NKIObject", "NkiTensor", "no_reorder",
    "not_equal", "num_programs", "ones", "power", "prelu", "private_hbm", "prod",
    "program_id", "program_ndim", "psum", "rand", "random_seed", "range", "reciprocal", "relu", "right_shift",
    "rms_norm", "rsqrt",
    "sbuf", "sequential_range", "shared_constant", "shared_hbm",
    "shared_identity_matrix", "sigmoid", "sign", "silu", "silu_dx", "sin", "softmax",
    "softplus", "spmd_dim", "sqrt", "square", "static_range", "store", "subtract", "sum", "tan", "tanh", "tfloat32",
    "tile_size", "transpose", "trunc", "uint16", "uint32", "uint8", "var", "where", "while_loop", "zeros", "zeros_like",
]
# fmt: on


def __getattr__(name: str) -> Any:
    """Names of older releases raise an error that says what to write instead."""
    raise removed(name)
