"""Each construct that NKI does not have: found, placed, and answered with a rewrite."""

# ruff: noqa: B006, B007, C416, C420, E711, E731, F401, F841, SIM105
from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from nki.frontend import SubsetDiagnostic, check_subset, function_source
from nki.frontend.subset_rules import RULES
from tests.frontend import samples

nl: Any = None


class NKIObject:
    """Stands for the base class of the language."""


def check(fn: object, **options: bool) -> list[SubsetDiagnostic]:
    source = function_source(fn)
    assert source is not None
    return check_subset(source, **options)


def ordinary(a, b: int | None = None, c=(1, 2)):
    """What published kernels use has no row."""

    @dataclass
    class State(NKIObject):
        x: int = 0

        @property
        def double(self):
            return self.x * 2

    def helper(x: list[int]) -> str:
        return f"{x}" if x else "none"

    table = {"a": 1, "b": [1, 2]}
    assert b == None or not b > 3, "message"
    for i in range(3):
        while i < 2 and b != 3:
            i += 1
            continue
    with nl.no_reorder():
        x = helper([i])
    if c in table:
        raise ValueError("no")
    return table, x, 1.5, True, -5, "s"


def test_ordinary_code_has_no_findings() -> None:
    assert check(ordinary) == []


async def asynchronous():
    await nl.x
    async with nl.y:
        pass
    async for x in nl.z:
        pass


def yields():
    yield 1


def signature(a, /, b=[1, 2], *args, c={}, **kwargs):
    return a


def keyword_only(a, *, c):
    return a


def values():
    x = {1, 2}
    y = {1: 2, "a": 3}
    z = (1j, b"bytes", 4294967296)


def expressions(a, b):
    x = a is None or b is not a.b[0]
    y = lambda q: q
    z = [i for i in a], {k: 1 for k in a}, {k for k in a}, any(i for i in a)
    if w := a(*b, **b):
        pass


def statements(a):
    global counter
    import math
    from os import path

    def inner():
        nonlocal a
        a = 1

    try:
        counter = 1
    except ValueError:
        pass
    del counter
    with nullcontext() as x, nl.no_reorder(), open:
        pass
    match a:
        case 1:
            pass


def definitions():
    @samples.twice
    def inner(p, *, q):
        yield 1

    class Plain:
        pass

    class Two(NKIObject, Plain):
        pass


EXPECTED = {
    asynchronous: ["async 1", "async 2", "async 3", "async 5"],
    yields: ["generator-kernel 1"],
    signature: [
        "positional-only 1",
        "list-argument 1",
        "star-parameters 1",
        "keyword-only 1",
        "mutable-default 1",
        "star-parameters 1",
    ],
    keyword_only: ["keyword-only 1"],
    values: ["set 2", "dict-key 3", "complex 4", "bytes 4", "wide-integer 4"],
    expressions: [
        "is-operator 2",
        "is-operator 2",
        "lambda 3",
        "comprehension 4",
        "comprehension 4",
        "comprehension 4",
        "generator 4",
        "walrus 5",
        "star-argument 5",
        "star-argument 5",
    ],
    statements: [
        "global 2",
        "import 3",
        "import 4",
        "nonlocal 7",
        "try 10",
        "del 14",
        "with 15",
        "with 15",
        "match 17",
    ],
    definitions: ["decorator 2", "generator 3", "keyword-only 3", "class-base 6", "class-base 9"],
}


@pytest.mark.parametrize("fn", EXPECTED, ids=lambda fn: fn.__name__)
def test_findings(fn: Any) -> None:
    first = fn.__code__.co_firstlineno
    found = [f"{item.code.removeprefix('subset-')} {item.line - first + 1}" for item in check(fn)]
    assert found == EXPECTED[fn]


def test_every_rule_is_tested() -> None:
    tested = {"subset-" + line.split()[0] for lines in EXPECTED.values() for line in lines}
    assert tested == set(RULES)


def test_only_what_cannot_be_staged_is_an_error() -> None:
    assert {code for code, rule in RULES.items() if rule.severity == "error"} == {
        "subset-async",
        "subset-generator-kernel",
    }


def test_remedies_use_the_code_at_hand() -> None:
    remedies = [item.remedy for fn in (expressions, signature, values, definitions) for item in check(fn)]
    assert "write `a == None`" in remedies
    assert "write `b != a.b[0]`" in remedies
    assert "write `(1, 2)`" in remedies
    assert "write `'1'`" in remedies
    assert "write `inner = samples.twice(inner)` after the function" in remedies


def test_places() -> None:
    source = function_source(expressions)
    assert source is not None
    texts = [source.line(item.line)[item.col : item.end_col] for item in check(expressions)]
    assert texts[:3] == ["a is None", "b is not a.b[0]", "lambda q: q"]
    assert all(item.file == __file__ for item in check(expressions))


def test_helpers_may_yield_and_take_lists() -> None:
    assert [item.code for item in check(yields, kernel=False)] == ["subset-generator"]
    assert "subset-list-argument" not in [item.code for item in check(signature, kernel=False)]
    assert check(keyword_only, kernel=False) == check(keyword_only)


def test_reads_as_one_line() -> None:
    (found,) = check(keyword_only)
    assert str(found) == (
        f"{__file__}:{found.line}: note[subset-keyword-only]: keyword-only parameters (`*`): the real compiler "
        "refuses it since NKI 0.3; drop the `*` and put parameters with defaults last"
    )
