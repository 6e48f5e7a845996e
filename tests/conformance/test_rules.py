"""The registry is complete: 192 rules, each with a statement, a basis and tests that exist and carry its number."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

from tests.conformance.registry import DOCUMENTED, INFERRED, NOT_APPLICABLE, ROOT, RULES, UNKNOWN

COUNT = 192
MODULES = sorted(path.stem for path in Path(__file__).parent.glob("test_rules_*.py"))
_NUMBERS = re.compile(r"(?<![a-z])rules?[ _]((?:\d+(?:,? and |, |_to_| to |_)?)+)", re.IGNORECASE)

for _name in MODULES:
    importlib.import_module(f"tests.conformance.{_name}")


@cache
def functions(file: str) -> dict[str, str]:
    """The tests of a module and their texts, decorators not included."""
    text = (ROOT / file).read_text(encoding="utf-8")
    lines = text.split("\n")
    found = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in found}


def numbers_in(text: str) -> set[int]:
    """The rules that a test's name or text speaks of: `rule_3`, `Rules 9 and 12`, `rules_115_to_118`."""
    found: set[int] = set()
    for match in _NUMBERS.finditer(text):
        found |= {int(number) for number in re.findall(r"\d+", match[1])}
        for first, last in re.findall(r"(\d+)(?:_to_| to )(\d+)", match[1]):
            found |= set(range(int(first), int(last) + 1))
    return found


def test_all_numbers_are_there() -> None:
    assert sorted(RULES) == list(range(1, COUNT + 1))


def test_statements_and_bases() -> None:
    for entry in RULES.values():
        assert entry.statement.endswith(".") and len(entry.statement) > 20, entry
        assert entry.basis in (DOCUMENTED, INFERRED, UNKNOWN, NOT_APPLICABLE), entry
        assert entry.tests, entry


def test_named_tests_exist() -> None:
    missing = []
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    for entry in RULES.values():
        for node in entry.tests:
            file, _, name = node.partition("::")
            if not (ROOT / file).is_file() or name not in functions(file):
                moved = [
                    p.relative_to(ROOT / "tests") for p in tests if f"def {name}(" in p.read_text("utf-8")
                ]
                missing.append(
                    f"rule {entry.number}: {node}, now in: {', '.join(map(str, moved)) or 'nowhere'}"
                )
    assert missing == [], "the test was renamed or moved: name it anew"


def test_every_rule_has_a_test_that_carries_its_number() -> None:
    without = []
    for entry in RULES.values():
        nodes = [node.partition("::") for node in entry.tests]
        texts = [functions(file).get(name, "") for file, _, name in nodes if (ROOT / file).is_file()]
        if not any(entry.number in numbers_in(text) for text in texts):
            without.append(entry.number)
    assert without == []


def test_tests_that_carry_a_number_are_entered() -> None:
    """A numbered test of this folder stands in the entry of its rule."""
    known = {node for entry in RULES.values() for node in entry.tests}
    files = [f"tests/conformance/{module}.py" for module in MODULES]
    assert [
        f"{file}::{name}" for file in files for name in functions(file) if f"{file}::{name}" not in known
    ] == []
