"""What the register instructions share: 32-bit words, and what may be loaded from and stored to memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.errors import LimitError, OperandShapeError
from nki.ir.program import Access
from nki.ir.verify import Fault
from nki.isa.apply import Array

REGISTER_TYPES = frozenset(d for d in dtypes.ALL if d.is_integer) | {dtypes.bool_, dtypes.float32}
"""Types that a register is documented to hold (nki-language-guide.rst); a bool is a byte."""

_BITS = 32


def word_of(number: int) -> Any:
    """An integer as the word a register holds: signed and unsigned values are the same bits."""
    return np.array([number & ((1 << _BITS) - 1)], np.uint32).view(np.int32)


def number_fault(name: str, number: int | None) -> Fault | None:
    """The fault if an integer does not fit a register, neither signed nor unsigned."""
    if number is None or -(1 << (_BITS - 1)) <= number < 1 << _BITS:
        return None
    return Fault(
        operand=name,
        found=number,
        allowed=f"{-(1 << (_BITS - 1))} to {(1 << _BITS) - 1}",
        remedy="keep the value within 32 bits",
        error=LimitError,
        text=f"`{name}` is {number}, which does not fit the {_BITS} bits of a register",
    )


def one_value_fault(name: str, access: Access) -> Fault | None:
    """The fault if a tensor has more than one element."""
    if access.size == 1:
        return None
    return Fault(
        operand=f"{name}: {access.describe()}",
        found=f"{access.size} elements",
        allowed="shape (1,) or (1, 1)",
        remedy="pass one element, e.g. tile[0:1, 0:1]",
        error=OperandShapeError,
        text=f"`{name}` has {access.size} elements, a register holds one value",
    )


def float_fault(name: str, access: Access) -> Fault | None:
    """The fault if the value in memory is a float, which no register instruction converts."""
    if access.dtype is not dtypes.float32:
        return None
    return Fault(
        operand=f"{name}: {access.describe()}",
        found="float32",
        allowed="an integer type for counts, conditions and indices",
        remedy="convert on the tile: nisa.tensor_copy(dst=int32_tile, src=float32_tile)",
    )


def set_word(register: Array, word: Array) -> None:
    """Write a constant into a register."""
    register[...] = word


def store_word(dst: Array, word: Array) -> None:
    """Write a register into memory; a narrower integer takes the low bits."""
    np.copyto(dst, word, casting="unsafe")
