"""What Python offers on objects but a tile refuses while a kernel is staged, each with its remedy.

NKI 0.6 has no operators on tensors, and a tile has no values that `if`, `len` or `float` could look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from nki import errors
from nki.objects import NKIObject
from nki.span import capture

_REMEDIES = {
    "+": "nl.add",
    "-": "nl.subtract",
    "*": "nl.multiply",
    "/": "nl.divide",
    "//": "nl.floor(nl.divide(...))",
    "%": "nl.mod",
    "**": "nl.power",
    "@": "nl.matmul",
    "&": "nl.bitwise_and",
    "|": "nl.bitwise_or",
    "^": "nl.bitwise_xor",
    "<<": "nl.left_shift",
    ">>": "nl.right_shift",
    "<": "nl.less",
    "<=": "nl.less_equal",
    ">": "nl.greater",
    ">=": "nl.greater_equal",
    "==": "nl.equal",
    "~": "nl.invert",
    "unary -": "nl.negative",
    "unary +": "nl.copy",
    "abs()": "nl.abs",
}
_INSTRUCTIONS = {"+": "add", "-": "subtract", "*": "multiply", "&": "bitwise_and", "|": "bitwise_or"}


def _operator(sign: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *operands: Any) -> NoReturn:
        function = _REMEDIES[sign]
        remedy = f"write {function}(...)"
        if sign in _INSTRUCTIONS:
            remedy += f", or nisa.tensor_tensor(dst=..., data1=..., data2=..., op=nl.{_INSTRUCTIONS[sign]})"
        raise errors.OperatorError(
            f"tensors have no operator `{sign}`",
            operand=self.access.describe(),
            found=f"`{sign}` with {type(operands[0]).__name__}" if operands else f"`{sign}`",
            allowed="calls of nki.language and nki.isa",
            remedy=remedy,
            span=capture(),
        )

    return refuse


class Refusals(NKIObject):
    """Base of `NkiTensor`: every Python protocol that would need values or a fresh tile."""

    __slots__ = ()

    access: Any

    __add__ = __radd__ = __iadd__ = _operator("+")
    __sub__ = __rsub__ = __isub__ = _operator("-")
    __mul__ = __rmul__ = __imul__ = _operator("*")
    __truediv__ = __rtruediv__ = __itruediv__ = _operator("/")
    __floordiv__ = __rfloordiv__ = __ifloordiv__ = _operator("//")
    __mod__ = __rmod__ = __imod__ = _operator("%")
    __pow__ = __rpow__ = __ipow__ = _operator("**")
    __matmul__ = __rmatmul__ = __imatmul__ = _operator("@")
    __and__ = __rand__ = __iand__ = _operator("&")
    __or__ = __ror__ = __ior__ = _operator("|")
    __xor__ = __rxor__ = __ixor__ = _operator("^")
    __lshift__ = __rlshift__ = __ilshift__ = _operator("<<")
    __rshift__ = __rrshift__ = __irshift__ = _operator(">>")
    __lt__ = _operator("<")
    __le__ = _operator("<=")
    __gt__ = _operator(">")
    __ge__ = _operator(">=")
    __neg__ = _operator("unary -")
    __pos__ = _operator("unary +")
    __invert__ = _operator("~")
    __abs__ = _operator("abs()")

    # NumPy would otherwise take the tensor apart in `array + tensor`.
    __array_ufunc__ = None

    def _no_comparison(self, sign: str) -> errors.NkiError:
        return errors.TruthValueError(
            "a tensor is compared with a number, but its values are not known while the kernel is staged",
            operand=self.access.describe(),
            found=f"`{sign}` with a number",
            allowed="comparison with None or with another view (are they the same elements?)",
            remedy=f"write {_REMEDIES[sign]}(tile, number) for a tile of 1 and 0",
            span=capture(),
        )

    def _no_value(self, what: str, remedy: str) -> errors.NkiError:
        return errors.TruthValueError(
            f"{what} of a tensor is not known while the kernel is staged",
            operand=self.access.describe(),
            found=what,
            allowed="values known while staging: Python numbers, shapes, dtypes",
            remedy=remedy,
            span=capture(),
        )

    def __bool__(self) -> bool:
        raise self._no_value(
            "the truth value",
            "to test whether a tensor was given write `is not None`; to choose by value use nl.where or compare "
            "on the host after the call",
        )

    def __float__(self) -> float:
        raise self._no_value(
            "the value", "pass numbers as kernel arguments, or use the tile as an operand of an instruction"
        )

    def __int__(self) -> int:
        raise self._no_value(
            "the value", "pass numbers as kernel arguments, or load a register with nisa.register_load"
        )

    def _no_sequence(self, what: str) -> errors.NkiError:
        return errors.ShapeError(
            f"a tensor is not a sequence: {what} is not defined",
            operand=self.access.describe(),
            found=what,
            allowed="t.shape, t.size and subscripts",
            remedy="write `for i in range(t.shape[0])` and subscript with i; the length is t.shape[0]",
            span=capture(),
        )

    def __len__(self) -> int:
        raise self._no_sequence("len()")

    def __iter__(self) -> Any:
        raise self._no_sequence("iteration")

    def __contains__(self, item: object) -> bool:
        raise self._no_sequence("`in`")
