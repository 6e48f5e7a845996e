"""`python -m tools.docs`: write the generated pages under docs/ and the generated tables of README.md.

With `--check` nothing is written; the exit code says whether the files are current. `instruction_page.py` reads the
instruction classes, `nki.target` gives the hardware numbers, the templates beside this file give the form.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import nki.isa
from nki.ir.instruction import REGISTRY, Instruction
from nki.target import Row, Target
from nki.target_dma import DmaTiming
from nki.target_limits import Limits
from nki.target_timing import EngineTiming
from tools.conformance import pages as conformance_pages
from tools.instruction_page import instruction_page
from tools.pages import ROOT, environment, report, stale, write
from tools.readme import readme_pages

DOCS = ROOT / "docs"
COMMAND = "make docs"
_SECTIONS = (
    ("Memories, limits and capabilities", Limits),
    ("Engines", EngineTiming),
    ("Data movement", DmaTiming),
)


@dataclass(frozen=True)
class FactRow:
    """One hardware number of the three generations."""

    name: str
    doc: str
    values: tuple[str, ...]
    known: str
    source: str


@dataclass(frozen=True)
class FactSection:
    """One of the tables that make a target."""

    title: str
    rows: tuple[FactRow, ...]


def documented() -> list[type[Instruction]]:
    """The instructions that kernels can call, by name."""
    return [cls for name, cls in sorted(REGISTRY.items()) if hasattr(nki.isa, name)]


def pages() -> dict[Path, str]:
    """Every generated page under docs/ with its text."""
    templates = environment()
    views = [instruction_page(cls) for cls in documented()]
    one = templates.get_template("instruction.md.j2")
    found = {DOCS / "isa" / f"{view.name}.md": one.render(page=view) for view in views}
    found[DOCS / "isa" / "index.md"] = templates.get_template("isa_index.md.j2").render(pages=views)
    found[DOCS / "target.md"] = templates.get_template("target.md.j2").render(sections=_fact_sections())
    return {path: text.rstrip("\n") + "\n" for path, text in found.items()}


def _fact_sections() -> list[FactSection]:
    by_name = {row.name: row for row in Target.rows()}
    return [
        FactSection(title, tuple(_fact(by_name[field.name]) for field in fields(part)))
        for title, part in _SECTIONS
    ]


def _fact(row: Row) -> FactRow:
    labels = [label.value for label in row.labels]
    known = labels[0] if len(set(labels)) == 1 else ", ".join(labels)
    return FactRow(row.name, row.doc, tuple(_value(value) for value in row.values), known, row.source)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(getattr(value, "name", value))


def leftovers() -> list[str]:
    """Generated pages of instructions that are gone."""
    wanted = {path.name for path in pages()}
    found = sorted((DOCS / "isa").glob("*.md"))
    return [path.relative_to(ROOT).as_posix() for path in found if path.name not in wanted]


def main(argv: list[str] | None = None) -> int:
    """Write or check. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Write the generated pages under docs/ and the tables of README.md."
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say which files are not current")
    options = parser.parse_args(argv)
    everything = {**pages(), **conformance_pages(), **readme_pages()}
    if options.check:
        return report([*stale(everything), *leftovers()], COMMAND)
    for name in leftovers():
        (ROOT / name).unlink()
    return write(everything)


if __name__ == "__main__":
    sys.exit(main())
