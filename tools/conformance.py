"""`python -m tools.conformance`: write docs/conformance.md, what is checked, on which ground, and where it is tested.

Rows of instructions are read from their classes, those of functions from `conformance_areas.py`, the rules with their
bases from the registry in tests/conformance, which the tests fill when they are imported. `--check` writes nothing.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nki.collectives
import nki.isa
import nki.language as nl
from nki.ir.instruction import REGISTRY, Instruction
from nki.ir.operands import Operand
from nki.target import get_target
from nki.target_facts import GENERATIONS
from tests.conformance.registry import RULES
from tools.conformance_areas import CALLS, LANGUAGE, METHODS, SINCE, Area
from tools.instruction_page import InstructionPage, instruction_page
from tools.pages import ROOT, environment, report, stale, write

PAGE = ROOT / "docs" / "conformance.md"
SWEEP = "conformance/test_registry.py"
ALWAYS = (2, 45, 46)
"""Rules that every instruction follows: float32 arithmetic with one rounding, agreeing operands, aliasing."""

SHARED = "nki.isa.compute"
"""The module whose rules hold for every instruction that computes."""

_CITED = re.compile(r"semantics rules? ([\d,\s-]+)")
_DTYPES = re.compile(r"dtype (.*)$")


@dataclass(frozen=True)
class Row:
    """One instruction, function or method."""

    name: str
    generations: str
    dtypes: str
    checked: str
    basis: str
    tests: str


@dataclass(frozen=True)
class RuleRow:
    """One rule of the registry."""

    number: int
    statement: str
    basis: str
    open: str
    tests: str


@dataclass(frozen=True)
class Section:
    """One table of functions."""

    title: str
    text: str
    rows: tuple[Row, ...]


def cited(cls: type[Instruction]) -> list[int]:
    """The rules that an instruction's documentation and rule texts cite, and those that all follow."""
    texts = [inspect.cleandoc(cls.__doc__ or ""), *(rule.rule_text for rule in cls.rules)]
    found = set(ALWAYS)
    for text in texts:
        for match in _CITED.finditer(text):
            found |= _numbers(match[1])
    return sorted(found)


def _numbers(text: str) -> set[int]:
    found: set[int] = set()
    for part in re.findall(r"\d+(?:-\d+)?", text):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def basis(numbers: Iterable[int]) -> str:
    """Rule numbers by their basis: `documented 2, 53; inferred 177`."""
    groups: dict[str, list[int]] = {}
    for number in sorted(set(numbers)):
        groups.setdefault(RULES[number].basis, []).append(number)
    return "; ".join(f"{name} {', '.join(map(str, found))}" for name, found in sorted(groups.items()))


def generations(cls: type[Instruction]) -> str:
    """The generations that have an instruction."""
    return ", ".join(name for name in GENERATIONS if get_target(name).version >= cls.since)


def shown_tests(files: Iterable[str]) -> str:
    """Links to test files."""
    return ", ".join(f"[{Path(file).stem.removeprefix('test_')}](../tests/{file})" for file in files)


def tests_of(name: str) -> list[str]:
    """The files that test an instruction."""
    found = [
        path.relative_to(ROOT / "tests").as_posix()
        for room in ("isa", "collectives", "language")
        for path in sorted((ROOT / "tests" / room).glob(f"test_{name}*.py"))
        if path.stem == f"test_{name}" or path.stem.startswith(f"test_{name}__")
    ]
    return [*found, SWEEP]


def _types(page: InstructionPage, cls: type[Instruction]) -> str:
    groups: dict[str, list[str]] = {}
    for row in page.parameters:
        match = _DTYPES.search(row.accepts)
        if match and isinstance(cls.parameters[row.name], Operand):
            groups.setdefault(match[1].removesuffix(", or a number"), []).append(f"`{row.name}`")
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{', '.join(names)}: {types}" for types, names in groups.items()) or "no tensor"


def _checks(page: InstructionPage, cls: type[Instruction]) -> str:
    limits = [
        f"{row.letter} <= {'/'.join(map(str, row.values)) if len(set(row.values)) > 1 else row.values[0]}"
        for row in page.limits
    ]
    shared = [rule.rule_text for rule in cls.rules if rule.__module__ == SHARED]
    told = zip(cls.rules, page.rules)
    rules = [text if severity == "error" else f"{text} ({severity})" for rule, (severity, text) in told
             if rule.rule_text not in shared]  # fmt: skip
    general = ["declaration", "compute operands"] if shared else ["declaration"]
    return "; ".join([*general, *limits, *rules])


def instruction_row(cls: type[Instruction]) -> Row:
    """What the page says of one instruction."""
    page = instruction_page(cls)
    link = (
        f"[`{cls.mnemonic}`](isa/{cls.mnemonic}.md)"
        if hasattr(nki.isa, cls.mnemonic)
        else f"`{cls.mnemonic}`"
    )
    return Row(
        link,
        generations(cls),
        _types(page, cls),
        _checks(page, cls),
        basis(cited(cls)),
        shown_tests(tests_of(cls.mnemonic)),
    )


def area_row(name: str, area: Area) -> Row:
    """What the page says of one function."""
    first = GENERATIONS.index(SINCE.get(name.removeprefix("nl."), GENERATIONS[0]))
    return Row(
        f"`{name}`",
        ", ".join(GENERATIONS[first:]),
        area.dtypes,
        area.checked,
        basis(area.rules),
        shown_tests(area.tests),
    )


def functions() -> dict[str, str]:
    """Name of each function of `nki.language` -> the module that defines it."""
    found = {}
    for name in nl.__all__:
        value = getattr(nl, name)
        module = str(getattr(value, "__module__", type(value).__module__))
        if module.startswith("nki.language."):
            found[name] = module.rpartition(".")[2]
    return found


_DECLARATION = (
    "One row an instruction, read from its class. *Declaration*: the generation has it, keywords exist, each operand "
    "is of a declared memory and dtype, dimensions that share a letter agree, an engine can run it. "
    "*Compute operands*: operators exist on the generation, operands cover consecutive partitions; and as warnings, "
    "start partitions, the length of a partition, offsets of tensor indirection."
)


def sections() -> list[Section]:
    """All tables of names."""
    classes = sorted(REGISTRY.items())
    isa = [instruction_row(cls) for name, cls in classes if hasattr(nki.isa, name)]
    ranks = [instruction_row(cls) for name, cls in classes if hasattr(nki.collectives, name)]
    nl_rows = [area_row(f"nl.{name}", LANGUAGE[module]) for name, module in sorted(functions().items())]
    methods = [area_row(name, area) for name, area in METHODS.items()]
    calls = [area_row(name, area) for name, area in CALLS.items()]
    return [
        Section("nki.isa", _DECLARATION, tuple(isa)),
        Section("nki.collectives", "Checked here; one rank runs.", tuple(ranks)),
        Section("nki.language", "Recipes over the instructions, whose checks come on top.", tuple(nl_rows)),
        Section("NkiTensor", "Views; nothing is copied.", tuple(methods)),
        Section("Kernels and other names", "Calling, annotating, asking.", tuple(calls)),
    ]


def rule_rows() -> list[RuleRow]:
    """The registry, by number."""
    return [
        RuleRow(r.number, r.statement, r.basis, r.open or "-", _node_links(r.tests))
        for _, r in sorted(RULES.items())
    ]


def _node_links(nodes: Iterable[str]) -> str:
    return ", ".join(
        f"[{name.removeprefix('test_')}](../{file})"
        for file, _, name in (node.partition("::") for node in nodes)
    )


def load_rules() -> None:
    """Import the tests that fill the registry."""
    for path in sorted((ROOT / "tests" / "conformance").glob("test_rules_*.py")):
        importlib.import_module(f"tests.conformance.{path.stem}")


def pages() -> dict[Path, str]:
    """The page with its text."""
    load_rules()
    counts = sorted(Counter(entry.basis for entry in RULES.values()).items())
    template = environment().get_template("conformance.md.j2")
    text = template.render(sections=sections(), rules=rule_rows(), counts=counts)
    return {PAGE: text.rstrip("\n") + "\n"}


def main(argv: list[str] | None = None) -> int:
    """Write or check. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Write docs/conformance.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, say whether the page is current")
    options = parser.parse_args(argv)
    return report(stale(pages()), "make docs") if options.check else write(pages())


if __name__ == "__main__":
    sys.exit(main())
