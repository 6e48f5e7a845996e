"""`VirtualRegister`: what a kernel holds of a register of the device, made by `nisa.register_alloc` or by a loop.

Its value exists only while the program runs. Whatever in Python would need it (a test, a comparison, `int`, `range`,
arithmetic) is refused with the device's own way to do it, in eager mode too, so that a kernel means the same
everywhere (semantics rules 124, 125).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from nki import errors
from nki.ir.control import Register
from nki.objects import NKIObject
from nki.span import capture

_BRANCH = (
    "there is no branch on a register: loop with nl.fori_loop or nl.while_loop, select values with a mask tile, and "
    "address with it: t.ap(pattern, scalar_offset=register) or t.select(dim, register)"
)
_COUNT = (
    "loop with nl.fori_loop(lower, register, body), or nl.while_loop(register, body); as an address pass it as "
    "scalar_offset= to t.ap, or to t.select"
)
_COMPUTE = (
    "registers only move: store it with nisa.register_store, compute on the tile with nisa.tensor_scalar, and load "
    "the result with nisa.register_load"
)


def _no_value(remedy: str, what: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *_: Any) -> NoReturn:
        raise errors.TruthValueError(
            f"{what} of a register is not known while the kernel is staged",
            operand=repr(self),
            found=what,
            allowed="bounds of device loops, the condition of a device loop, dynamic addresses, register instructions",
            remedy=remedy,
            span=capture(),
        )

    return refuse


def _operator(sign: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *operands: Any) -> NoReturn:
        raise errors.OperatorError(
            f"registers have no operator `{sign}`",
            operand=repr(self),
            found=f"`{sign}` with {type(operands[0]).__name__}" if operands else f"`{sign}`",
            allowed="nisa.register_move, register_load and register_store",
            remedy=_COMPUTE,
            span=capture(),
        )

    return refuse


class VirtualRegister(NKIObject):
    """A 32-bit register of the device.

    register: its entry in the program.  frozen: whether it is the counter of a loop, which cannot be written.
    """

    __slots__ = ("register",)

    register: Register

    def __init__(self, state: Register | None = None, frozen: bool = False) -> None:
        if state is None:
            state = Register("placeholder", frozen=frozen, span=capture())
        if not isinstance(state, Register):
            raise errors.ArgumentError(
                f"VirtualRegister() takes a register of a program, got {type(state).__name__}",
                operand="state",
                found=f"{state!r:.80}",
                allowed="what nisa.register_alloc makes",
                remedy="make registers with nisa.register_alloc()",
                span=capture(),
            )
        self.register = state

    @property
    def frozen(self) -> bool:
        """Whether instructions cannot write it."""
        return self.register.frozen

    __bool__ = _no_value(_BRANCH, "the truth value")
    __lt__ = _no_value(_BRANCH, "a comparison")
    __le__ = _no_value(_BRANCH, "a comparison")
    __gt__ = _no_value(_BRANCH, "a comparison")
    __ge__ = _no_value(_BRANCH, "a comparison")
    __int__ = _no_value(_COUNT, "the value")
    __index__ = _no_value(_COUNT, "the value")
    __float__ = _no_value(_COUNT, "the value")
    __len__ = _no_value(_COUNT, "the length")
    __iter__ = _no_value(_COUNT, "iteration")
    __add__ = __radd__ = __iadd__ = _operator("+")
    __sub__ = __rsub__ = __isub__ = _operator("-")
    __mul__ = __rmul__ = __imul__ = _operator("*")
    __truediv__ = __rtruediv__ = __itruediv__ = _operator("/")
    __floordiv__ = __rfloordiv__ = __ifloordiv__ = _operator("//")
    __mod__ = __rmod__ = __imod__ = _operator("%")
    __pow__ = __rpow__ = __ipow__ = _operator("**")
    __and__ = __rand__ = __iand__ = _operator("&")
    __or__ = __ror__ = __ior__ = _operator("|")
    __xor__ = __rxor__ = __ixor__ = _operator("^")
    __lshift__ = __rlshift__ = __ilshift__ = _operator("<<")
    __rshift__ = __rrshift__ = __irshift__ = _operator(">>")
    __neg__ = _operator("unary -")
    __pos__ = _operator("unary +")
    __invert__ = _operator("~")
    __abs__ = _operator("abs()")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, VirtualRegister):
            return self.register == other.register
        if isinstance(other, (int, float)):
            self.__lt__(other)
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        if isinstance(other, (int, float)):
            self.__lt__(other)
        return not self == other

    def __hash__(self) -> int:
        return hash(self.register)

    def __repr__(self) -> str:
        return f"<VirtualRegister ${self.register.name}>"
