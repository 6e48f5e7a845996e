"""The data types of NKI: their names, how they are stored, and the one conversion between them.

A dtype is a string (`nl.bfloat16 == "bfloat16"`) that also knows its NumPy storage type. `as_dtype` turns
whatever a framework calls a type into one of ours. Values change type only through `caster`: to float32, then
one rounding to nearest even; integers saturate. The operators in between are in `nki/isa/alu.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from nki.errors import DtypeError

Array = NDArray[Any]
Call = tuple[Callable[..., object], tuple[Any, ...]]
Kind = Literal["float", "int", "uint", "bool", "packed"]


class DType(str):
    """A data type: equal to, and hashed like, its documented name."""

    numpy: np.dtype[Any]
    kind: Kind
    itemsize: int

    def __new__(cls, name: str, storage: Any, kind: Kind) -> DType:
        self = super().__new__(cls, name)
        self.numpy = np.dtype(storage)
        self.kind = kind
        self.itemsize = self.numpy.itemsize
        return self

    @property
    def dtype(self) -> np.dtype[Any]:
        """The storage type under the name that NumPy looks for."""
        return self.numpy

    @property
    def is_float(self) -> bool:
        """True for the floating-point types, the 8-bit ones and `float8_e8m0fnu` included."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for `bool`."""
        return self.kind in ("int", "uint")

    def __reduce__(self) -> tuple[Callable[[object], DType], tuple[str]]:
        return as_dtype, (str(self),)


def _packed(name: str, itemsize: int) -> DType:
    """A type of four values in one element.

    Stored as raw bytes with its name in the metadata: unlike an unsigned integer, a void type takes part in
    no arithmetic, and unlike a structure it has no fields. NumPy keeps the metadata through views and copies
    but ignores it when it compares types, so ask `as_dtype` which packed type an array has.
    """
    return DType(name, np.dtype(f"V{itemsize}", metadata={"nki": name}), "packed")


bool_: Final = DType("bool", np.bool_, "bool")
int8: Final = DType("int8", np.int8, "int")
int16: Final = DType("int16", np.int16, "int")
int32: Final = DType("int32", np.int32, "int")
uint8: Final = DType("uint8", np.uint8, "uint")
uint16: Final = DType("uint16", np.uint16, "uint")
uint32: Final = DType("uint32", np.uint32, "uint")
float16: Final = DType("float16", np.float16, "float")
float32: Final = DType("float32", np.float32, "float")
bfloat16: Final = DType("bfloat16", ml_dtypes.bfloat16, "float")
tfloat32: Final = DType("tfloat32", np.float32, "float")
float8_e4m3: Final = DType("float8_e4m3", ml_dtypes.float8_e4m3, "float")
float8_e4m3fn: Final = DType("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float")
float8_e5m2: Final = DType("float8_e5m2", ml_dtypes.float8_e5m2, "float")
float8_e8m0fnu: Final = DType("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, "float")
float8_e4m3fn_x4: Final = _packed("float8_e4m3fn_x4", 4)
float8_e5m2_x4: Final = _packed("float8_e5m2_x4", 4)
float4_e2m1fn_x4: Final = _packed("float4_e2m1fn_x4", 2)

ALL: Final[tuple[DType, ...]] = (
    *(bool_, int8, int16, int32, uint8, uint16, uint32),
    *(float16, float32, bfloat16, tfloat32, float8_e4m3, float8_e4m3fn, float8_e5m2, float8_e8m0fnu),
    *(float8_e4m3fn_x4, float8_e5m2_x4, float4_e2m1fn_x4),
)

# Every name, NumPy type and NumPy scalar type that means one of ours. `tfloat32` shares its storage with
# `float32`, and packed types of one size compare equal: these are known by name only.
_NAMED_ONLY: Final = frozenset((tfloat32, float8_e4m3fn_x4, float8_e5m2_x4, float4_e2m1fn_x4))
_KNOWN: Final[dict[object, DType]] = {
    "bool_": bool_,
    "float8e4": float8_e4m3,
    "float8e5": float8_e5m2,
    **{str(t): t for t in ALL},
    **{t.numpy: t for t in ALL if t not in _NAMED_ONLY},
    **{t.numpy.type: t for t in ALL if t not in _NAMED_ONLY},
}

# `np.dtype` reads a string before it looks for a `.dtype` attribute: teach it the names it does not know.
for _type in ALL:
    np.sctypeDict.setdefault(_type, _type.numpy)  # type: ignore[arg-type]

_REMEDY: Final = {
    "float64": "cast to float32 before the call",
    "int64": "cast to int32 before the call",
    "uint64": "cast to uint32 before the call",
    **dict.fromkeys(("complex64", "complex128"), "pass real and imaginary part as two float32 tensors"),
}


def as_dtype(value: object) -> DType:
    """The NKI type that `value` means.

    Takes NKI types and their names (the older `float8e4` and `float8e5` too), NumPy and ml_dtypes types, the
    scalar types of JAX, and torch types. All else, 64-bit and complex types included, is a `DtypeError`.
    """
    if isinstance(value, DType):
        return value
    found = _lookup(value) or _lookup(str(value).removeprefix("torch.")) or _lookup(_numpy_dtype(value))
    if found is None:
        raise _unknown(value)
    return found


def _lookup(key: object) -> DType | None:
    """The type registered for `key`; packed types are recognised by their metadata."""
    if isinstance(key, np.dtype) and key.metadata:
        key = key.metadata.get("nki", key)
    try:
        return _KNOWN.get(key)
    except TypeError:  # unhashable
        return None


def _numpy_dtype(value: object) -> np.dtype[Any] | None:
    """What NumPy makes of a type object, not of strings (only documented names count) nor of tensors of ours."""
    if value is None or isinstance(value, str) or isinstance(getattr(value, "dtype", None), DType):
        return None
    try:
        return np.dtype(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return None


def _unknown(value: object) -> Exception:
    name = str(_numpy_dtype(value) or value).removeprefix("torch.")
    return DtypeError(
        f"{name!r} is not a data type of NKI",
        found=name,
        allowed=", ".join(ALL),
        remedy=_REMEDY.get(name, "use one of the types of nki.language"),
    )


def cast_into(dst: Array, src: Array) -> None:
    """Convert `src` into `dst`, of the same shape, as the machine does wherever the types differ.

    Equal types copy bits. Otherwise the value passes through float32 and is rounded once, to nearest even. An
    integer destination saturates and takes 0 for NaN; a `bool` destination takes "is not zero"; narrow floats
    overflow as ml_dtypes defines for each type. Floating-point warnings are the caller's to silence.
    """
    for function, args in caster(dst, src):
        function(*args)


def caster(dst: Array, src: Array) -> list[Call]:
    """`cast_into(dst, src)` as a list of calls on exactly these two arrays, with scratch memory allocated.

    Run the calls in order, as often as wanted. Arrays of different types must not overlap.
    """
    to, of = as_dtype(dst.dtype), as_dtype(src.dtype)
    if to is of:
        return [_copy_bits(dst, src)]
    if "packed" in (to.kind, of.kind):
        raise DtypeError("packed types are never converted", found=f"{of} to {to}", remedy="use a view")
    calls: list[Call] = []
    wide = src if of is float32 else dst if to is float32 else np.empty(src.shape, np.float32)
    if wide is not src:
        _widen(wide, src, calls)
    if to is bool_:
        calls.append((np.not_equal, (wide, _ZERO, dst)))
    elif to.is_integer:
        _round_to_integer(dst, wide, calls)
    elif to.itemsize == 1:
        _round_to_8_bits(dst, wide, calls)
    elif to is not float32:
        _convert(dst, wide, calls)
    return calls


_ZERO: Final = np.zeros((), np.float32)
_SMALL: Final = 2048  # bytes: below, an assignment is quicker than a ufunc


def _copy(dst: Array, src: Array) -> Call:
    """`dst[...] = src`: item assignment has half the overhead of `np.copyto` and converts just the same."""
    return dst.__setitem__, (..., src)


def _bits(array: Array) -> Array:
    """The array as unsigned integers: NumPy moves those faster than types it does not know."""
    return array.view(f"u{array.itemsize}")


def _copy_bits(dst: Array, src: Array) -> Call:
    """A copy without conversion.

    A plain copy is `rep movsb`, which AMD's Zen 3 runs fifteen times slower if `dst` lies a few bytes after
    `src` modulo the page. A vector loop never does.
    """
    into, of = _bits(dst), _bits(src)
    if src.nbytes > _SMALL and _has_dense_rows(dst) and _has_dense_rows(src):
        return np.bitwise_or, (of, of, into)
    return _copy(into, of)


def _convert(dst: Array, src: Array, calls: list[Call]) -> None:
    """Append the library's own conversion.

    The vectorised loops for bfloat16 want contiguous rows and are thirty times slower without: rows with gaps
    are gathered before, or scattered after, as plain integers.
    """
    any_rows = bfloat16.numpy not in (src.dtype, dst.dtype)
    source = src if any_rows or _has_dense_rows(src) else np.empty(src.shape, src.dtype)
    target = dst if any_rows or _has_dense_rows(dst) else np.empty(dst.shape, dst.dtype)
    if source is not src:
        calls.append(_copy_bits(source, src))
    calls.append(_copy(target, source))
    if target is not dst:
        calls.append(_copy_bits(dst, target))


def _has_dense_rows(array: Array) -> bool:
    return array.ndim == 0 or array.shape[-1] <= 1 or array.strides[-1] == array.itemsize


def _widen(dst: Array, src: Array, calls: list[Call]) -> None:
    """Append the conversion of `src` to float32 `dst`: exact, but for 32-bit integers beyond 2^24."""
    if as_dtype(src.dtype).is_float and src.dtype != bfloat16.numpy:
        # 8 bits or float16: looking the value up is two to five times as fast as converting.
        calls.append((_values_of_codes(src.dtype).take, (_bits(src), None, dst, "wrap")))
    else:
        _convert(dst, src, calls)


def _round_to_8_bits(dst: Array, src: Array, calls: list[Call]) -> None:
    """Append the rounding of float32 `src` to a float type of one byte.

    First round to odd in the upper half of the bits: their lowest bit also says whether anything was dropped.
    The result is on the same side of every rounding boundary as the value, so looking its code up is one
    correct rounding.
    """
    low, width = np.array(0xFFFF, np.uint32), np.array(16, np.uint32)
    bits, odd = _bits(src), np.empty(src.shape, np.uint32)
    calls.append((np.bitwise_and, (bits, low, odd)))
    calls.append((np.add, (odd, low, odd)))
    calls.append((np.bitwise_or, (odd, bits, odd)))
    calls.append((np.right_shift, (odd, width, odd)))
    calls.append((_codes_of_upper_halves(dst.dtype).take, (odd, None, _bits(dst), "wrap")))


def _round_to_integer(dst: Array, src: Array, calls: list[Call]) -> None:
    """Append rounding to nearest even, saturation and NaN to 0."""
    limits = np.iinfo(dst.dtype)
    # float32 does not hold the largest 32-bit integers, float64 does.
    work = np.empty(src.shape, np.float64 if dst.itemsize == src.itemsize else np.float32)
    nan = np.empty(src.shape, np.bool_)
    calls.append((np.rint, (src, work)))
    calls.append((work.clip, (work.dtype.type(limits.min), work.dtype.type(limits.max), work)))
    calls.append((np.not_equal, (src, src, nan)))
    calls.append((work.__setitem__, (nan, _ZERO)))
    calls.append(_copy(dst, work))


@cache
def _values_of_codes(dtype: np.dtype[Any]) -> Array:
    """The float32 value of each bit pattern of an 8 or 16-bit float type."""
    return np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype).astype(np.float32)


@cache
def _codes_of_upper_halves(dtype: np.dtype[Any]) -> Array:
    """The code in an 8-bit float type of each float32 whose lower half is zero, by its upper half."""
    values = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        return _bits(values.astype(dtype))


def round_tf32(dst: Array, src: Array) -> None:
    """Round float32 `src` to the 10 mantissa bits of tfloat32, to nearest even; `dst` may be `src`."""
    bits, nan = src.view(np.uint32), np.isnan(src)
    round_up = ((bits >> 13) & 1) + 0xFFF
    np.bitwise_and(bits + round_up, 0xFFFFE000, dst.view(np.uint32))
    np.copyto(dst, np.nan, where=nan)
