"""What the rules of an instruction tie together, said in its own test file. Tests nothing.

Sizes, dtypes and values of a legal call come from the declaration; rules may want more (a count, a permuted shape).
`LEGAL = {"dst": "P F/2 float32 psum", "axis": 1}` in `test_<name>.py` says so: for a tensor its dimensions, then its
dtype and memory if they are fixed, for anything else the value. The sweep of the registry follows it always, random
programs most of the time. Most instructions need none.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from nki.dtypes import ALL
from nki.ir.operands import Attribute
from tests.source_tree import ROOT, text_of

PLACES = ("sbuf", "psum", *ALL)
"""The words of an operand that are no dimensions."""


@cache
def declared(mnemonic: str) -> dict[str, Any]:
    """`LEGAL` of the instruction's test file, or nothing."""
    path = ROOT / "tests" / "isa" / f"test_{mnemonic}.py"
    if not path.exists() or "\nLEGAL" not in text_of(path):
        return {}
    found: dict[str, Any] = importlib.import_module(f"tests.isa.{path.stem}").LEGAL
    return found


def dimensions(words: str) -> list[str]:
    """The dimensions among the words of an operand."""
    return [word for word in words.split() if word not in PLACES]


def size_of(word: str, sizes: Mapping[str, int]) -> int | None:
    """`16`, a letter, `F+1` or `F/4`; `None` if the letter has no size."""
    if word.isdigit():
        return int(word)
    letter, sign, number = word[0], word[1:2], word[2:]
    size = sizes.get(letter)
    if size is None or not sign:
        return size
    return size + int(number) if sign == "+" else size // int(number)


def value_of(attribute: Attribute, value: Any) -> Any:
    """A value as the instruction holds it; a number may be written as text."""
    return attribute.kind.convert(int(value) if isinstance(value, str) and value.isdigit() else value)
