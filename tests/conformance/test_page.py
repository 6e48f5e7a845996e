"""docs/conformance.md: current, without an empty cell, naming only what exists."""

from __future__ import annotations

import re

import nki.collectives
import nki.isa
import nki.language as nl
from nki.ir.instruction import REGISTRY
from nki.tensor import NkiTensor
from tests.conformance.registry import RULES
from tests.source_tree import ROOT
from tools import conformance
from tools.conformance_areas import CALLS, LANGUAGE, METHODS
from tools.pages import stale

PAGES = conformance.pages()
TEXT = PAGES[conformance.PAGE]


def rows() -> list[list[str]]:
    """The cells of all tables."""
    lines = [line for line in TEXT.split("\n") if line.startswith("|") and not line.startswith("| ---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_committed_page_is_current() -> None:
    assert stale(PAGES) == [], "renew it with: make docs"


def test_check_says_whether_the_page_is_current(capsys) -> None:
    assert conformance.main(["--check"]) == 0 and capsys.readouterr().err == ""


def test_no_cell_is_empty_and_rows_are_complete() -> None:
    assert len(rows()) > 300
    for cells in rows():
        assert len(cells) in (5, 6) and all(cells), cells


def test_every_instruction_has_a_row() -> None:
    names = {cells[0].split("`")[1] for cells in rows() if "`" in cells[0]}
    public = {name for name in REGISTRY if hasattr(nki.isa, name) or hasattr(nki.collectives, name)}
    assert public <= names
    assert {f"nl.{name}" for name in conformance.functions()} <= names


def test_every_function_has_an_area() -> None:
    modules = set(conformance.functions().values())
    assert modules == set(LANGUAGE)
    others = set(nl.__all__) - set(conformance.functions())
    kinds = ("nki.dtypes", "nki.enums", "nki.objects", "nki.tensor", "builtins")
    assert {getattr(getattr(nl, n), "__module__", type(getattr(nl, n)).__module__) for n in others} <= set(
        kinds
    )


def test_every_method_has_an_area() -> None:
    methods = {n for n in dir(NkiTensor) if n[0] != "_" and callable(getattr(NkiTensor, n))}
    assert methods <= set(METHODS)


def test_links_lead_somewhere() -> None:
    for target in set(
        re.findall(r"\]\(([^)#]+)\)", re.sub(r"`[^`]*`", "", TEXT).replace("kernel[n](...)", ""))
    ):
        assert (ROOT / "docs" / target).exists(), target


def test_numbers_are_those_of_rules() -> None:
    areas = [*LANGUAGE.values(), *METHODS.values(), *CALLS.values()]
    assert all(set(area.rules) <= set(RULES) and area.rules and area.tests for area in areas)
    for cls in REGISTRY.values():
        assert set(conformance.cited(cls)) <= set(RULES)


def test_every_rule_but_those_of_other_tools_is_cited_by_something() -> None:
    """Nothing in the list is idle: a rule is followed by an instruction, a function, a view or a call."""
    used = {number for cls in REGISTRY.values() for number in conformance.cited(cls)}
    used |= {n for areas in (LANGUAGE, METHODS, CALLS) for area in areas.values() for n in area.rules}
    idle = sorted(n for n, rule in RULES.items() if n not in used and rule.basis != "not applicable")
    assert idle == []
