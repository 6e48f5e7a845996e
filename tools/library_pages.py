"""The tables of predicted times in the READMEs of nki_lib: what a kernel takes, and how far that is from its bound.

`python -m tools.library_pages nki_lib/linear/matmul` writes the table of one operator, without an argument all of them
(minutes). The rows are the operator's `cases.py`.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nki
from interpreter.profile import Profile
from nki.target import get_target
from nki_lib.common.cases import Case
from tools.pages import ROOT
from tools.readme import table

ENGINES = {"Tensor": "tensor", "Vector": "vector", "Scalar": "scalar", "GpSimd": "gpsimd", "DMA": "dma"}
MARKS = "<!-- predicted -->", "<!-- /predicted -->"


def busiest(profile: Profile) -> float:
    """The work of the busiest engine in microseconds."""
    return max(engine.busy_us for engine in profile.engines.values())


def transfer(moved: int, target: str) -> float:
    """Microseconds in which all DMA engines together move so many bytes."""
    machine = get_target(target)
    return moved / (machine.dma_engines * machine.dma_engine_bytes_per_us)


def bytes_of(values: Any) -> int:
    """Of all arrays among the values."""
    return sum(value.nbytes for value in values if hasattr(value, "nbytes"))


def row(case: Case, target: str) -> tuple[str, ...]:
    """One line of the table."""
    arguments = case.arguments()
    profile = nki.profile(case.kernel, target=target)(*arguments, **case.kwargs)
    bound = busiest(profile)
    if case.bound == "bandwidth":
        moved = case.bytes
        if moved is None:
            results = nki.simulate(case.kernel, target=target)(*arguments, **case.kwargs)
            results = results if isinstance(results, tuple) else (results,)
            moved = bytes_of((*arguments, *case.kwargs.values(), *results))
        bound = transfer(moved, target)
    engines = profile.engines
    used = (f"{engines[name].utilisation:.0%}" if name in engines else "-" for name in ENGINES.values())
    time = f"{profile.latency_us:,.1f}"
    return case.label, target, time, *used, case.bound, f"{bound:,.1f}", f"{profile.latency_us / bound:.2f}x"


def predicted(cases: tuple[Case, ...]) -> str:
    """The table of these cases."""
    head = ("", "on", "us", *ENGINES, "bound by", "bound, us", "distance")
    return table(head, (row(case, target) for case in cases for target in case.targets))


def folders() -> Iterator[Path]:
    """The operators that have cases."""
    for path in sorted((ROOT / "nki_lib").glob("*/*/cases.py")):
        yield path.parent


def write(folder: Path) -> None:
    """Put the table of an operator into its README, between the marks."""
    name = ".".join(folder.resolve().relative_to(ROOT).parts)
    text = predicted(importlib.import_module(f"{name}.cases").CASES)
    page = folder / "README.md"
    before = page.read_text(encoding="utf-8")
    pattern = re.compile(f"{MARKS[0]}.*?{MARKS[1]}", re.DOTALL)
    if not pattern.search(before):
        raise SystemExit(f"{page}: no line {MARKS[0]} ... {MARKS[1]} to put the table between")
    page.write_text(pattern.sub(lambda _: f"{MARKS[0]}\n\n{text}\n\n{MARKS[1]}", before), encoding="utf-8")


def main() -> None:
    """Write the tables of the folders that are named, or of all."""
    for folder in [Path(name) for name in sys.argv[1:]] or list(folders()):
        write(folder)


if __name__ == "__main__":
    main()
