"""The pages of nki_lib are true: their Python runs, their tables have the rows of the cases, their links lead on."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import nki_lib  # noqa: E402
from tests.source_tree import ROOT  # noqa: E402

LIBRARY = ROOT / "nki_lib"
PAGES = sorted(LIBRARY.rglob("README.md"))
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
NEEDS_A_CHECKPOINT = "from_pretrained"


def name_of(path: Path) -> str:
    return str(path.relative_to(LIBRARY))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in PAGES if CODE.search(page.read_text())], ids=name_of)
def test_examples_run(page: Path) -> None:
    names: dict[str, object] = {"__name__": "readme"}
    for code in CODE.findall(page.read_text()):
        if NEEDS_A_CHECKPOINT not in code:
            for extra in ("transformers", "torchao"):
                if extra in code:
                    pytest.importorskip(extra)
            exec(compile(code, str(page), "exec"), names)


@pytest.mark.parametrize("cases", sorted(LIBRARY.glob("*/*/cases.py")), ids=name_of)
def test_tables_have_a_row_for_every_case(cases: Path) -> None:
    module = importlib.import_module(".".join(cases.relative_to(ROOT).with_suffix("").parts))
    table = (cases.parent / "README.md").read_text().split("<!-- predicted -->")[1]
    rows = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in table.splitlines()]
    expected = [(case.label, target) for case in module.CASES for target in case.targets]
    assert [row for row in rows if row in expected] == expected


def test_every_operator_has_a_page_and_a_door() -> None:
    listed = (LIBRARY / "README.md").read_text()
    for name in nki_lib.__all__:
        assert f"`{name}`" in listed or f"nki_lib.{name}" in listed, name
