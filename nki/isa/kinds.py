"""The attribute kinds that instructions share: ALU operators and activation functions, as tokens in the IR text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki.errors import ArgumentError, OperatorError
from nki.ir.operands import NUMBER, Kind, Symbol, optional
from nki.isa.activation_functions import as_activation
from nki.isa.alu import AluOp, as_alu_op


def token(describe: str, convert: Callable[[Any], Any]) -> Kind:
    """Kind of a parameter that takes one of the function-like tokens of `nki.language`."""

    def read(value: Any) -> Any:
        return convert(value.text if isinstance(value, Symbol) else value)

    return Kind(describe, convert, lambda value: str(value.name), read)


def operators(describe: str, allowed: Callable[[AluOp], bool]) -> Kind:
    """Kind of a parameter that takes only some of the ALU operators."""

    def convert(value: Any) -> AluOp:
        operator = as_alu_op(value)
        if not allowed(operator):
            raise OperatorError(
                f"`{operator.name}` cannot be used here",
                found=f"nl.{operator.name}",
                allowed=describe,
                remedy=f"pass {describe}",
            )
        return operator

    return token(describe, convert)


def _numbers(value: Any) -> tuple[float, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(NUMBER.convert(item) for item in value)
    raise ArgumentError(
        f"expected a list of numbers, got {type(value).__name__}",
        found=f"{value!r:.80}",
        allowed="a list of numbers",
        remedy="write [1.0, 1.0]",
    )


NUMBERS = Kind(
    "a list of numbers", _numbers, lambda value: f"[{', '.join(map(NUMBER.show, value))}]", _numbers
)
ALU_OP = token("an operator of nki.language", as_alu_op)
ALU_OP_OR_NONE = optional(ALU_OP)
ARITHMETIC_OP = operators("an arithmetic operator", lambda operator: operator.kind == "arith")
BINARY_OP = operators("an operator of two operands", lambda operator: operator.arity == 2)
BINARY_ARITHMETIC_OP = operators(
    "an arithmetic operator of two operands",
    lambda operator: operator.kind == "arith" and operator.arity == 2,
)
COMPARE_OP = operators("a comparison operator", lambda operator: operator.compare)
REDUCE_OP = operators("a reduction operator", lambda operator: operator.reduce)
ACTIVATION = token("an activation function of nki.language", as_activation)
