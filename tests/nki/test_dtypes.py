"""Data types: their names, their storage, and what else is accepted as one of them."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from nki import dtypes
from nki.dtypes import ALL, DType, as_dtype
from nki.errors import DtypeError

FLOATS = {"float32", "tfloat32", "bfloat16", "float16"}
FLOATS |= {"float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"}
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")


def test_names_are_the_documented_ones():
    assert set(ALL) == {
        *("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"),
        *("float16", "float32", "bfloat16", "tfloat32"),
        *("float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
        *("float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4"),
    }
    assert dtypes.bool_ == "bool"
    for name in ALL:
        if name != "bool":
            assert getattr(dtypes, name) == name


@pytest.mark.parametrize("dtype", ALL)
def test_a_dtype_is_its_name(dtype):
    name = str(dtype)
    assert type(name) is str and dtype == name and hash(dtype) == hash(name)
    assert {dtype: 1}[name] == 1
    assert as_dtype(name) is dtype and as_dtype(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype and copy.deepcopy(dtype) is dtype


@pytest.mark.parametrize("dtype", ALL)
def test_numpy_accepts_a_dtype(dtype):
    assert np.dtype(dtype) == dtype.numpy == dtype.dtype
    assert np.zeros((2, 3), dtype).dtype.itemsize == dtype.itemsize
    assert as_dtype(np.zeros((2, 3), dtype).dtype) is (dtypes.float32 if dtype == "tfloat32" else dtype)


def test_sizes_and_kinds():
    sizes = {"bool": 1, "float32": 4, "tfloat32": 4, "bfloat16": 2, "float16": 2, "float8_e8m0fnu": 1}
    sizes |= {"float8_e4m3fn_x4": 4, "float8_e5m2_x4": 4, "float4_e2m1fn_x4": 2}
    for name, size in sizes.items():
        assert as_dtype(name).itemsize == size
    assert [str(t) for t in ALL if t.is_integer] == list(INTEGERS)
    assert {str(t) for t in ALL if t.is_float} == FLOATS
    assert not dtypes.bool_.is_integer and dtypes.bool_.kind == "bool"
    assert dtypes.uint8.kind == "uint" and dtypes.int8.kind == "int"


def test_packed_types_are_told_apart_and_from_integers():
    packed = [t for t in ALL if t.kind == "packed"]
    assert len(packed) == 3
    for dtype in packed:
        array = np.zeros((4, 8), dtype)
        for view in (array[1:, ::2], array.copy(), array.view(np.uint8).view(dtype.numpy), array.reshape(-1)):
            assert as_dtype(view.dtype) is dtype
        assert dtype.numpy not in (np.dtype(np.uint16), np.dtype(np.uint32))
    with pytest.raises(DtypeError):
        as_dtype(np.dtype("V4"))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (np.float32, "float32"),
        (np.dtype(np.int16), "int16"),
        (np.bool_, "bool"),
        (bool, "bool"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn"),
        ("float8e4", "float8_e4m3"),
        ("float8e5", "float8_e5m2"),
    ],
)
def test_as_dtype_of_other_spellings(given, name):
    assert as_dtype(given) == name


def test_as_dtype_of_objects_that_carry_a_numpy_dtype():
    class ScalarType:  # as the scalar types of JAX do
        dtype = np.dtype(ml_dtypes.bfloat16)

    assert as_dtype(ScalarType) == "bfloat16"


def test_what_carries_a_type_of_nki_is_no_dtype():
    class Tensor:
        dtype = as_dtype("float32")

    for given in (Tensor, Tensor()):
        with pytest.raises(DtypeError):
            as_dtype(given)


def test_as_dtype_of_torch_types():
    torch = pytest.importorskip("torch")
    for name in ("float32", "bfloat16", "float16", "int8", "uint8", "int32", "uint16", "uint32", "bool"):
        assert as_dtype(getattr(torch, name)) == name
    assert as_dtype(torch.half) == "float16"
    assert as_dtype(torch.float8_e5m2) == "float8_e5m2"
    with pytest.raises(DtypeError, match="float32"):
        as_dtype(torch.float64)


@pytest.mark.parametrize(
    "given",
    [np.float64, np.int64, np.uint64, np.complex64, "float64", "f4", "", None, float, int, 5, [], {}, object]
    + [np.dtype(">f4"), np.dtype([("a", "f4")]), ml_dtypes.float8_e4m3fnuz, "torch.float33"],
)
def test_what_is_no_dtype_is_refused(given):
    with pytest.raises(TypeError) as caught:
        as_dtype(given)
    assert isinstance(caught.value, DtypeError)


def test_the_refusal_says_what_to_do():
    with pytest.raises(DtypeError) as caught:
        as_dtype(np.int64)
    assert caught.value.found == "int64" and "int32" in str(caught.value.remedy)


def test_import_needs_no_framework():
    code = "import sys, nki.dtypes; print([m for m in ('torch', 'jax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_dtype_is_a_string_type():
    assert issubclass(DType, str) and f"{dtypes.bfloat16}" == "bfloat16"
