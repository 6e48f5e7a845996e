"""Which globals and attributes a piece of code names, nested functions included."""

from __future__ import annotations

import dis
from dataclasses import dataclass
from types import CodeType

from nki.frontend.codes import CodeTable, nested_codes


@dataclass(frozen=True)
class NamesRead:
    """`globals` are looked up in the module (or are built in); `names` also holds attributes."""

    globals: tuple[str, ...]
    names: frozenset[str]


_known: CodeTable[NamesRead] = CodeTable()


def names_read(code: CodeType) -> NamesRead:
    """The names that `code` and everything nested in it may read."""
    known = _known.get(code)
    if known is not None:
        return known
    found: dict[str, None] = {}
    names: set[str] = set()
    for nested in nested_codes(code):
        names.update(nested.co_names)
        for instruction in dis.get_instructions(nested):
            name = instruction.opname
            if name == "LOAD_NAME" or (name.startswith("LOAD") and name.endswith(("GLOBAL", "GLOBALS"))):
                found[instruction.argval] = None
    return _known.put(code, NamesRead(tuple(found), frozenset(names)))
