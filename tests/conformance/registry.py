"""The registry of rules: number -> statement, basis, tests. Tests nothing; `test_rules.py` checks that it is complete.

A test of this folder enters its rule with `@rule(...)`; `covered(...)` enters one that tests elsewhere hold, and
`not_applicable(...)` one that does not speak about this project. `tools/conformance.py` makes docs/conformance.md
of it.

Basis: DOCUMENTED, the public documentation or a release note says it. INFERRED, it follows from examples, from public
code or from the hardware's description. UNKNOWN, the sources are silent or contradict each other, and the statement is
what we chose. `open` names the part of a documented rule that is only our choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

DOCUMENTED = "documented"
INFERRED = "inferred"
UNKNOWN = "unknown"
NOT_APPLICABLE = "not applicable"

ROOT = Path(__file__).resolve().parents[2]
_Test = TypeVar("_Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rule:
    """One rule. `tests` are node ids, relative to the root of the repository."""

    number: int
    statement: str
    basis: str
    tests: tuple[str, ...]
    open: str = ""


RULES: dict[int, Rule] = {}


def _enter(entry: Rule) -> None:
    if entry.number in RULES:
        raise ValueError(f"rule {entry.number} is entered twice")
    RULES[entry.number] = entry


def _node(test: Callable[..., Any]) -> str:
    path = Path(test.__code__.co_filename).resolve().relative_to(ROOT)
    return f"{path.as_posix()}::{test.__name__}"


def _shortened(tests: tuple[str, ...]) -> tuple[str, ...]:
    """`isa/test_iota.py::test_patterns` stands for the full node id."""
    return tuple(f"tests/{test}" for test in tests)


def rule(number: int, basis: str, statement: str, *others: str, open: str = "") -> Callable[[_Test], _Test]:
    """Enter a rule with the decorated test; `others` are tests elsewhere that hold more of it."""

    def mark(test: _Test) -> _Test:
        _enter(Rule(number, statement, basis, (_node(test), *_shortened(others)), open))
        return test

    return mark


def also(number: int) -> Callable[[_Test], _Test]:
    """The decorated test holds a part of a rule entered above it."""

    def mark(test: _Test) -> _Test:
        RULES[number] = replace(RULES[number], tests=(*RULES[number].tests, _node(test)))
        return test

    return mark


def covered(number: int, basis: str, statement: str, *tests: str, open: str = "") -> None:
    """Enter a rule that is tested elsewhere."""
    _enter(Rule(number, statement, basis, _shortened(tests), open))


def not_applicable(number: int, statement: str, *tests: str) -> None:
    """Enter a rule that says nothing about this project; the statement gives the reason."""
    _enter(Rule(number, statement, NOT_APPLICABLE, _shortened(tests)))
