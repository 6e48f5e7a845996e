"""Values of elementwise instructions over all dtypes in and out, against NumPy: float32, then one conversion."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.dtypes import ALL, DType
from tests.isa.tiles import load, sbuf, store

f32 = np.float32
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
DTYPES = [dtype for dtype in ALL if dtype.kind != "packed"]
VALUES = np.array([0, 1, 2, 3, 5, 7, 100, 127, 0.5, 1.5, 2.5, -1, -2, -0.5, -100], f32)

BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
}
UNARY = {
    "copy": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "square": np.square,
    "abs": np.abs,
    "sign": np.sign,
}


def stored(values: np.ndarray, dtype: DType) -> np.ndarray:
    """float32 numbers as a tile of this type keeps them, back as float64."""
    values = np.asarray(values, f32)
    if dtype.kind == "bool":
        return (values != 0).astype(np.float64)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        whole = np.rint(np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=1e300, neginf=-1e300))
        return np.clip(whole, info.min, info.max)
    if dtype == "tfloat32":
        bits = values.view(np.uint32).astype(np.uint64)
        bits = (bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint64(0x1FFF)
        return np.where(np.isfinite(values), bits.astype(np.uint32).view(f32), values).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype.numpy).astype(np.float64)


def read(array: np.ndarray) -> np.ndarray:
    """An array of any dtype as float64."""
    return array.astype(f32).astype(np.float64) if array.dtype.kind not in "iub" else array.astype(np.float64)


@nki.jit
def kernel(x, y, dtype):
    """All operators on x and y, each into a tile of `dtype`."""
    a, b, results = load(x), load(y), {}

    def fresh(name):
        results[name] = sbuf(x.shape, dtype)
        return results[name]

    for name in BINARY:
        op = getattr(nl, name)
        nisa.tensor_tensor(dst=fresh(f"{name} of tiles"), data1=a, data2=b, op=op, engine=nisa.engine.vector)
        nisa.tensor_scalar(dst=fresh(f"{name} of a number"), data=a, op0=op, operand0=1.5)
        nisa.scalar_tensor_tensor(
            dst=fresh(f"{name} twice"), data=a, op0=nl.subtract, operand0=0.25, op1=op, operand1=b
        )
    for name in UNARY:
        nisa.activation(dst=fresh(f"activation {name}"), op=getattr(nl, name), data=a, scale=1.5, bias=0.25)
    nisa.tensor_copy(dst=fresh("tensor_copy"), src=a)
    nisa.dma_copy(dst=fresh("dma_copy"), src=a)
    nisa.activation(dst=fresh("scalar copy"), op=nl.copy, data=a)
    return tuple(store(tile) for tile in results.values())


def expected(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """The float32 results, in the kernel's order."""
    a, b = x.astype(f32), y.astype(f32)
    found: dict[str, np.ndarray] = {}
    for name, function in BINARY.items():
        found[f"{name} of tiles"] = function(a, b)
        found[f"{name} of a number"] = function(a, f32(1.5))
        found[f"{name} twice"] = function(a - f32(0.25), b)
    for name, function in UNARY.items():
        found[f"activation {name}"] = function(a * f32(1.5) + f32(0.25))
    for name in ("tensor_copy", "dma_copy", "scalar copy"):
        found[name] = a
    return found


@pytest.mark.parametrize("source", DTYPES)
def test_elementwise(source: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_CHECK", "0")
    values = np.abs(VALUES) if source == "float8_e8m0fnu" or source.kind == "uint" else VALUES
    with np.errstate(invalid="ignore"):
        x, y = (v.astype(source.numpy)[None] for v in (values, np.roll(values, 4)))
    if source == "tfloat32":
        x, y = (stored(v, source).astype(f32) for v in (x, y))
    for target in DTYPES if LONG else DTYPES[DTYPES.index(source) % 3 :: 3]:
        results = nki.simulate(kernel, target="trn3")(x.view(), y, target)
        for (name, exact), result in zip(expected(x, y).items(), results, strict=True):
            np.testing.assert_array_equal(
                read(result), stored(exact, target), err_msg=f"{name}: {source} to {target}"
            )


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_integer])
def test_bits(dtype: DType) -> None:
    """And, or, xor and shifts act on the pattern of the element's width."""
    info = np.iinfo(dtype.numpy)
    x = np.array([[0, 1, 5, info.max, info.min, 77]], dtype.numpy)
    unsigned = x.view(f"u{dtype.itemsize}")

    @nki.jit
    def bits(x):
        t, results = load(x), []
        for op in (nl.bitwise_and, nl.bitwise_or, nl.bitwise_xor, nl.left_shift, nl.right_shift):
            results.append(sbuf(x.shape, x.dtype))
            nisa.tensor_scalar(dst=results[-1], data=t, op0=op, operand0=3)
        return tuple(store(tile) for tile in results)

    three = unsigned.dtype.type(3)
    wanted = (unsigned & three, unsigned | three, unsigned ^ three, unsigned << three, unsigned >> three)
    for found, exact in zip(nki.simulate(bits)(x), wanted, strict=True):
        assert found.dtype == x.dtype and (found.view(unsigned.dtype) == exact.astype(unsigned.dtype)).all()


def test_float8_e4m3fn_has_no_infinity() -> None:
    """The oracle itself: what NumPy's type does with a number that is too large."""
    with np.errstate(over="ignore"):
        assert np.isnan(f32(1e6).astype(ml_dtypes.float8_e4m3fn).astype(f32))
    assert np.isnan(stored(np.array([1e6]), nl.float8_e4m3fn)).all()
