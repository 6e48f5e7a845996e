"""The documented surface: every function with its parameters, written down a second time, by hand from the docs."""

from __future__ import annotations

import inspect
from enum import Enum

import pytest

import nki.language as nl

TWO_OPERANDS = """
    add subtract multiply divide maximum minimum abs_max abs_min power equal not_equal less
    less_equal greater greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift
    logical_and logical_or logical_xor fmod mod
"""
ONE_OPERAND = """
    abs square invert logical_not exp log sqrt rsqrt tanh sigmoid relu gelu gelu_apprx_sigmoid
    gelu_apprx_tanh gelu_dx gelu_apprx_sigmoid_dx silu silu_dx softplus mish erf erf_dx reciprocal
    copy sin cos tan arctan ceil floor trunc negative sign transpose
"""
OTHERS = {
    "sum": "x, axis, dtype=None, keepdims=False",
    "max": "x, axis, dtype=None, keepdims=False",
    "min": "x, axis, dtype=None, keepdims=False",
    "mean": "x, axis, dtype=None, keepdims=False",
    "prod": "x, axis, dtype=None, keepdims=False",
    "var": "x, axis, dtype=None, keepdims=False",
    "all": "x, axis, dtype=None",
    "softmax": "x, axis=-1, dtype=None",
    "rms_norm": "x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None",
    "where": "condition, x, y, dtype=None",
    "ones": "shape, dtype, buffer=sbuf, name=''",
    "zeros": "shape, dtype, buffer=sbuf, name=''",
    "full": "shape, fill_value, dtype, buffer=sbuf, name=''",
    "ndarray": "shape, dtype, buffer=sbuf, name='', address=None",
    "zeros_like": "x, dtype=None, buffer=None, name=''",
    "empty_like": "x, dtype=None, buffer=None, name=''",
    "rand": "shape, dtype, buffer=sbuf, name=''",
    "random_seed": "seed",
    "dropout": "x, rate, dtype=None",
    "expand_dims": "x, axis",
    "broadcast_to": "x, shape, dtype=None",
    "matmul": "x, y, transpose_x=False",
    "load": "src, dtype=None",
    "store": "dst, value",
    "load_transpose2d": "src, dtype=None",
    "ds": "start, size",
    "affine_range": "start, stop=None, step=1",
    "sequential_range": "start, stop=None, step=1",
    "static_range": "start, stop=None, step=1",
    "program_id": "axis=0",
    "num_programs": "axes=0",
    "program_ndim": "",
    "device_print": "print_prefix, tensor",
    "is_hbm": "buffer",
    "is_on_chip": "buffer",
    "is_psum": "buffer",
    "is_sbuf": "buffer",
}
METHODS = {
    "__init__": "self, shape, dtype, storage, buffer=sbuf, name=''",
    "is_contiguous": "self",
    "get_pattern": "self",
    "is_indirect": "self",
    "__getitem__": "self, key",
    "__setitem__": "self, key, value",
    "permute": "self, dims",
    "broadcast": "self, dim, size",
    "expand_dim": "self, dim",
    "squeeze_dim": "self, dim",
    "reshape_dim": "self, dim, shape",
    "flatten_dims": "self, start_dim, end_dim",
    "reshape": "self, shape",
    "rearrange": "self, src_pattern, dst_pattern, fixed_sizes=None",
    "slice": "self, dim, start, end, step=1",
    "select": "self, dim, index",
    "ap": "self, pattern, offset=None, scalar_offset=None, vector_offset=None, indirect_dim=0, dtype=None",
    "view": "self, dtype",
    "reinterpret_cast": "self, dtype",
}
DTYPES = """
    bool_ int8 int16 int32 uint8 uint16 uint32 float16 float32 bfloat16 tfloat32 float8_e4m3 float8_e4m3fn
    float8_e5m2 float8_e5m2_x4 float8_e4m3fn_x4 float8_e8m0fnu float4_e2m1fn_x4
"""


def parameters(function: object) -> str:
    """The parameters of a function without annotations, regions by their name."""
    shown = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        value = default.name if isinstance(default, Enum) else repr(default)
        shown.append(parameter.name + ("" if default is parameter.empty else f"={value}"))
    return ", ".join(shown)


FUNCTIONS = {
    **dict.fromkeys(TWO_OPERANDS.split(), "x, y, dtype=None"),
    **dict.fromkeys(ONE_OPERAND.split(), "x, dtype=None"),
    **OTHERS,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function = getattr(nl, name)
    assert parameters(function) == FUNCTIONS[name]
    assert function.__name__ == name and function.__doc__
    assert name in nl.__all__


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    assert parameters(getattr(nl.NkiTensor, name)) == METHODS[name]


def test_dtypes():
    for name in DTYPES.split():
        assert getattr(nl, name) == ("bool" if name == "bool_" else name)


def test_all_is_complete():
    public = {n for n in vars(nl) if not n.startswith("_") and not inspect.ismodule(getattr(nl, n))}
    assert public - set(nl.__all__) == {"Any", "annotations", "removed"}
    assert set(nl.__all__) <= public
