"""The attribute kinds that instructions share: ALU operators and activation functions, as tokens in the IR text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki.errors import OperatorError
from nki.ir.operands import Kind, Symbol, optional
from nki.isa.activation_functions import as_activation
from nki.isa.alu import AluOp, as_alu_op


def _token(describe: str, convert: Callable[[Any], Any]) -> Kind:
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

    return _token(describe, convert)


ALU_OP = _token("an operator of nki.language", as_alu_op)
ALU_OP_OR_NONE = optional(ALU_OP)
ARITHMETIC_OP = operators("an arithmetic operator", lambda operator: operator.kind == "arith")
BINARY_OP = operators("an operator of two operands", lambda operator: operator.arity == 2)
BINARY_ARITHMETIC_OP = operators(
    "an arithmetic operator of two operands",
    lambda operator: operator.kind == "arith" and operator.arity == 2,
)
COMPARE_OP = operators("a comparison operator", lambda operator: operator.compare)
REDUCE_OP = operators("a reduction operator", lambda operator: operator.reduce)
ACTIVATION = _token("an activation function of nki.language", as_activation)
