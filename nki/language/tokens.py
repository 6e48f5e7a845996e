"""Operator names that are no functions: they only stand for an operator in an instruction's arguments."""

from __future__ import annotations

from typing import Any, NoReturn

from nki import errors
from nki.span import capture


class OperatorToken:
    """`nl.<name>` as the value of an `op` parameter."""

    def __init__(self, name: str, doc: str) -> None:
        self.nki_token = name
        self.__name__ = name
        self.__doc__ = doc

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise errors.ArgumentError(
            f"nl.{self.nki_token} is an operator and not a function",
            found=f"nl.{self.nki_token}(...)",
            allowed=f"op=nl.{self.nki_token}",
            remedy="pass it to an instruction of nki.isa",
            span=capture(),
        )

    def __repr__(self) -> str:
        return f"nl.{self.nki_token}"


average = OperatorToken("average", "Mean, as the operator of a reduction across partitions.")
bypass = OperatorToken("bypass", "No operation: the value passes through.")
prelu = OperatorToken("prelu", "x where x >= 0, relu_param * x elsewhere.")
