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
from typing import Any, NamedTuple

import nki
from interpreter.profile import Profile
from nki.target import get_target
from nki_lib.common.cases import Case
from tools.pages import ROOT
from tools.readme import table

ENGINES = {"Tensor": "tensor", "Vector": "vector", "Scalar": "scalar", "GpSimd": "gpsimd", "DMA": "dma"}
SHOWN = "trn2"
SHORT = 50  # microseconds; what takes less is mostly latency, and says little about a schedule
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


class Measured(NamedTuple):
    """A case on a generation: the cells of its row, how many times its bound it takes, its profile in words."""

    target: str
    microseconds: float
    cells: tuple[str, ...]
    distance: float
    kernel: str
    profile: str


def measure(case: Case, target: str) -> Measured:
    """Profile one call."""
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
    distance = profile.latency_us / bound
    times = f"{profile.latency_us:,.1f}", *used, case.bound, f"{bound:,.1f}", f"{distance:.2f}x"
    cells = (case.label, target, *times)
    return Measured(target, profile.latency_us, cells, distance, profile.kernel, str(profile).rstrip())


def folders() -> Iterator[Path]:
    """The operators that have cases."""
    for path in sorted((ROOT / "nki_lib").glob("*/*/cases.py")):
        yield path.parent


def put(page: Path, text: str) -> None:
    """Write the text into the page, between the marks."""
    before = page.read_text(encoding="utf-8")
    pattern = re.compile(f"{MARKS[0]}.*?{MARKS[1]}", re.DOTALL)
    if not pattern.search(before):
        raise SystemExit(f"{page}: no line {MARKS[0]} ... {MARKS[1]} to put the table between")
    page.write_text(pattern.sub(lambda _: f"{MARKS[0]}\n\n{text}\n\n{MARKS[1]}", before), encoding="utf-8")


def write(folder: Path) -> list[Measured]:
    """Measure the cases of an operator and put their table into its README."""
    name = ".".join(folder.resolve().relative_to(ROOT).parts)
    cases = importlib.import_module(f"{name}.cases").CASES
    found = [measure(case, target) for case in cases for target in case.targets]
    head = ("", "on", "us", *ENGINES, "bound by", "bound, us", "distance")
    put(folder / "README.md", table(head, (each.cells for each in found)))
    return found


def overview(found: dict[Path, list[Measured]]) -> str:
    """All operators on one generation, and the profile of what is farthest from its bound, short cases aside."""
    rows = []
    for folder, measured in found.items():
        link = f"[`{folder.name}`]({folder.relative_to(ROOT / 'nki_lib')}/README.md)"
        for each in measured:
            if each.target == SHOWN:
                label, _, time, *_, kind, bound, distance = each.cells
                rows.append((link, label, time, kind, bound, distance))
                link = ""
    shown = [m for each in found.values() for m in each if m.target == SHOWN and m.microseconds >= SHORT]
    last = max(shown, key=lambda m: m.distance)
    text = table(("", f"on {SHOWN}", "us", "bound by", "bound, us", "distance"), rows)
    farthest = f"The farthest from its bound, {last.cells[0]} (`{last.kernel}`):"
    return f"{text}\n\n{farthest}\n\n```\n{last.profile}\n```"


def main() -> None:
    """Write the tables of the folders that are named, or of all and the overview."""
    named = [Path(name).resolve() for name in sys.argv[1:]]
    found = {folder: write(folder) for folder in named or folders()}
    if not named:
        put(ROOT / "nki_lib" / "README.md", overview(found))


if __name__ == "__main__":
    main()
