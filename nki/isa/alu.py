"""The ALU operators: one row each, with what it computes, where it may run and how it reduces.

Instructions take an operator as a token (`op=nl.add`, `op=np.add`, `op="add"`); `as_alu_op` finds the row. The
functions compute on arrays the machine has bound: float32 for arithmetic operators (32-bit integers where an
instruction says so), unsigned integers of the element's width for bit operators. They convert nothing and leave
floating-point warnings to their caller. The Scalar engine's functions are in `activation_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from nki.enums import engine, nc_version
from nki.errors import OperatorError

Array = NDArray[Any]
Reduction = Callable[[Array, Any, Array], object]


@dataclass(frozen=True, eq=False)
class AluOp:
    """One operator of the ALU.

    `function(x, y, out)`, or `function(x, out)` if `arity` is 1; `out` may be one of the inputs.
    `reduce_function(array, axis, out)` folds one or several axes, which `out` may keep or lack. It exists for each
    operator that some instruction folds with; `reduce` marks those that are legal reductions everywhere.
    `identity` is the value a fold may start from. `engines` have the operator, the usual one first.
    """

    name: str
    kind: Literal["arith", "bitvec"]
    arity: int
    function: Callable[..., object]
    doc: str
    compare: bool = False
    reduce: bool = False
    reduce_function: Reduction | None = None
    identity: float | None = None
    since: nc_version = nc_version.gen2
    engines: tuple[engine, ...] = (engine.vector,)

    def __str__(self) -> str:
        return self.name


def _maximum(x: Array, y: Array, out: Array) -> None:
    """The larger; NaN if either is NaN: fast, and what the hardware does with NaN is not documented."""
    np.maximum(x, y, out=out)  # NumPy deprecates a positional `out` for these two


def _minimum(x: Array, y: Array, out: Array) -> None:
    """The smaller; NaN if either is NaN."""
    np.minimum(x, y, out=out)


for _safe in (_maximum, _minimum):
    # One call of a NumPy function, which reads overlapping operands before it writes.
    _safe.reads_first = True  # type: ignore[attr-defined]


def _abs_max(x: Array, y: Array, out: Array) -> None:
    """The operand of larger magnitude with its sign, `y` on a tie."""
    out[...] = np.where(np.abs(x) > np.abs(y), x, y)


def _abs_min(x: Array, y: Array, out: Array) -> None:
    """The operand of smaller magnitude with its sign, `y` on a tie."""
    out[...] = np.where(np.abs(x) < np.abs(y), x, y)


def relu(x: Array, out: Array) -> None:
    """`max(x, 0)`; NaN stays NaN."""
    x.clip(_ZERO, _INFINITY, out)  # more than twice as fast as `np.maximum` with a scalar


def rsqrt(x: Array, out: Array) -> None:
    """`1 / sqrt(x)` with one rounding."""
    np.divide(1.0, np.sqrt(x, dtype=np.float64), out, casting="same_kind")


_ZERO: Final = np.float32(0)
_INFINITY: Final = np.float32(np.inf)


def _fold(ufunc: np.ufunc) -> Reduction:
    """The reduction of a ufunc, at NumPy's full speed and in its order (none is documented)."""

    def reduce_function(array: Array, axis: Any, out: Array) -> None:
        ufunc.reduce(array, axis=axis, out=out, keepdims=out.ndim == array.ndim)

    return reduce_function


def _fold_subtract(array: Array, axis: Any, out: Array) -> None:
    """The first element minus all others, one after the other."""
    flat, result = _merge_axes(array, axis, out)
    np.subtract.reduce(flat, axis=-1, out=result)


def _fold_magnitude(find: Callable[..., Any]) -> Reduction:
    """Fold `abs_max` or `abs_min`: of equal magnitudes the last element, as `y` wins a tie."""

    def reduce_function(array: Array, axis: Any, out: Array) -> None:
        flat, result = _merge_axes(array, axis, out)
        backwards = flat[..., ::-1]
        place = find(np.abs(backwards), axis=-1)[..., None]
        result[...] = np.take_along_axis(backwards, place, -1)[..., 0]

    return reduce_function


def _merge_axes(array: Array, axis: Any, out: Array) -> tuple[Array, Array]:
    """The array with the reduced axes merged into its last one, and `out` without them."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if out.ndim == array.ndim:
        out = np.squeeze(out, axes)
    last = np.moveaxis(array, axes, tuple(range(-len(axes), 0)))
    return last.reshape(*last.shape[: array.ndim - len(axes)], -1), out


def _bit_operator(name: str, function: np.ufunc, doc: str, **more: Any) -> AluOp:
    return AluOp(name, "bitvec", function.nin, function, doc, **more)


def _bit_reduction(name: str, function: np.ufunc, doc: str, identity: float | None) -> AluOp:
    fold = _fold(function)
    return _bit_operator(name, function, doc, reduce=True, reduce_function=fold, identity=identity)


def _arithmetic(name: str, function: Callable[..., object], doc: str, **more: Any) -> AluOp:
    return AluOp(name, "arith", 2, function, doc, **more)


def _reduction(name: str, function: Any, fold: Reduction, identity: float, doc: str, **more: Any) -> AluOp:
    return _arithmetic(name, function, doc, reduce=True, reduce_function=fold, identity=identity, **more)


def _comparison(name: str, function: np.ufunc, sign: str) -> AluOp:
    return _arithmetic(name, function, f"1.0 if x {sign} y else 0.0", compare=True)


def _unary(name: str, function: Any, doc: str, engines: tuple[engine, ...], **more: Any) -> AluOp:
    return AluOp(name, "arith", 1, function, doc, engines=engines, **more)


_INF: Final = float("inf")
_VECTOR: Final = (engine.vector,)
_VECTOR_SCALAR: Final = (engine.vector, engine.scalar)
_VECTOR_GPSIMD: Final = (engine.vector, engine.gpsimd)  # GpSimd: 32-bit integers
_THREE: Final = (*_VECTOR_GPSIMD, engine.scalar)  # Scalar: from gen3 on
_GEN4: Final = nc_version.gen4

_ROWS: Final[Iterable[AluOp]] = (
    _bit_operator("invert", np.invert, "each bit of x flipped"),
    _bit_reduction("bitwise_and", np.bitwise_and, "bits set in both (identity: all ones, no number)", None),
    _bit_reduction("bitwise_or", np.bitwise_or, "bits set in either", 0.0),
    _bit_reduction("bitwise_xor", np.bitwise_xor, "bits set in exactly one", 0.0),
    # On unsigned integers NumPy gives 0 for a count of at least the width, and moves zeros in from the left.
    _bit_operator("left_shift", np.left_shift, "bits of x moved up by y places"),
    _bit_operator(
        "right_shift", np.right_shift, "bits of x moved down by y places, the sign bit as any other"
    ),
    _reduction("add", np.add, _fold(np.add), 0.0, "x + y", engines=_THREE),
    _reduction("subtract", np.subtract, _fold_subtract, 0.0, "x - y", engines=_VECTOR_GPSIMD),
    _reduction("multiply", np.multiply, _fold(np.multiply), 1.0, "x * y", engines=_THREE),
    _reduction("maximum", _maximum, _fold(np.maximum), -_INF, "the larger of x and y"),
    _reduction("minimum", _minimum, _fold(np.minimum), _INF, "the smaller of x and y"),
    # Anything but 0 counts as true; the hardware documents 0 and 1 only.
    _reduction("logical_and", np.logical_and, _fold(np.logical_and), 1.0, "1.0 if both are true else 0.0"),
    _reduction("logical_or", np.logical_or, _fold(np.logical_or), 0.0, "1.0 if any is true else 0.0"),
    _reduction("logical_xor", np.logical_xor, _fold(np.logical_xor), 0.0, "1.0 if one is true else 0.0"),
    _comparison("equal", np.equal, "="),
    _comparison("not_equal", np.not_equal, "<>"),
    _comparison("greater", np.greater, ">"),
    _comparison("greater_equal", np.greater_equal, ">="),
    _comparison("less", np.less, "<"),
    _comparison("less_equal", np.less_equal, "<="),
    _arithmetic("power", np.power, "x to the power y; never from PSUM", engines=(engine.gpsimd,)),
    _arithmetic(
        "abs_max",
        _abs_max,
        "the one of larger magnitude, y on a tie",
        reduce_function=_fold_magnitude(np.argmax),
        identity=0.0,
        since=_GEN4,
    ),
    _arithmetic(
        "abs_min",
        _abs_min,
        "the one of smaller magnitude, y on a tie",
        reduce_function=_fold_magnitude(np.argmin),
        identity=_INF,
        since=_GEN4,
    ),
    _unary("abs", np.absolute, "x without its sign", _VECTOR_SCALAR),
    _unary("square", np.square, "x * x", _VECTOR, since=_GEN4),
    _unary("relu", relu, "max(x, 0)", _VECTOR, since=_GEN4),
    _unary("rsqrt", rsqrt, "1 / sqrt(x)", (engine.gpsimd, engine.scalar)),
    _unary("reciprocal", np.reciprocal, "1 / x", _VECTOR_SCALAR),
)

ALU: Final[dict[str, AluOp]] = {row.name: row for row in _ROWS}

# NumPy functions whose name is not that of the operator; `max` and `min` are also NKI's own spelling.
_SYNONYMS: Final = {
    "absolute": "abs",
    **dict.fromkeys(("max", "amax"), "maximum"),
    **dict.fromkeys(("min", "amin"), "minimum"),
    "sum": "add",
    "prod": "multiply",
    "all": "logical_and",
    "any": "logical_or",
}


def alu(name: str) -> AluOp:
    """The operator of this name."""
    return as_alu_op(name)


def as_alu_op(token: object) -> AluOp:
    """The operator that a token stands for.

    A token is an `AluOp`, a name, an `nl` function (it carries its operator's name as `nki_token`) or a NumPy
    function (`np.add`, `np.max`). Anything else is an `OperatorError`.
    """
    if isinstance(token, AluOp):
        return token
    name = token_name(token)
    if name is None or name not in ALU:
        raise operator_error(token, "an ALU operator", ALU)
    return ALU[name]


def token_name(token: object) -> str | None:
    """The name a token stands for, `None` if it is no token at all."""
    if isinstance(token, str):
        return _SYNONYMS.get(token, token) if token in ("max", "min") else token
    marked = getattr(token, "nki_token", None)
    if isinstance(marked, str):
        return token_name(marked)
    name = getattr(token, "__name__", None)
    if isinstance(name, str) and (isinstance(token, np.ufunc) or vars(np).get(name) is token):
        return _SYNONYMS.get(name, name)
    return None


def operator_error(token: object, wanted: str, known: Iterable[str]) -> Exception:
    """The error for a token that is not in the table of `known` names."""
    name = str(getattr(token, "name", None) or token_name(token) or getattr(token, "__name__", token))
    known = list(known)
    close = get_close_matches(name, known, n=1)
    remedy = f"did you mean nl.{close[0]}?" if close else None
    return OperatorError(f"{name!r} is not {wanted}", found=name, allowed=", ".join(known), remedy=remedy)
