"""The tables of README.md that are read from the code, so that they cannot rot. `make docs` renews them.

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`. The table of speeds is measured, so only
`python -m tools.readme --benchmarks` renews it, on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import nki.isa
import nki.language as nl
from nki import dtypes
from nki.enums import engine as Engine
from nki.ir.instruction import REGISTRY
from nki.target import get_target
from nki.target_facts import GENERATIONS
from tools.instruction_page import engine_names, first_generation
from tools.pages import ROOT, cell, write

README = ROOT / "README.md"
_MIB = 1 << 20
_KIB = 1 << 10


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown."""
    lines = [list(head)]
    lines.append(["---"] * len(lines[0]))
    lines += [[cell(value) for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def instructions() -> str:
    """Name, engines and first generation of every instruction."""
    rows = [
        (f"[`{name}`](docs/isa/{name}.md)", engine_names(cls), first_generation(cls))
        for name, cls in sorted(REGISTRY.items())
        if hasattr(nki.isa, name)
    ]
    return table(("`nki.isa`", "engines", "since"), rows)


def language() -> str:
    """The names of `nki.language`, in one paragraph per kind."""
    names = [name for name in nl.__all__ if name not in set(dtypes.ALL) | {"bool_", "DType"}]
    return ", ".join(f"`{name}`" for name in sorted(names, key=str.lower))


def types() -> str:
    """The data types."""
    return ", ".join(f"`{kind}`" for kind in dtypes.ALL)


def targets() -> str:
    """The generations with the numbers that people ask for first."""
    rows: list[tuple[object, ...]] = []
    for name in GENERATIONS:
        machine = get_target(name)
        clocks = [machine.clock_ghz(unit) for unit in (Engine.tensor, Engine.vector, Engine.scalar)]
        rows.append(
            (
                f"`{name}`",
                f"{machine.sbuf_size_bytes // _MIB} MiB ({machine.sbuf_fmax_bytes // _KIB} KiB a partition usable)",
                f"{machine.psum_partition_bytes * machine.pmax // _MIB} MiB in {machine.psum_num_banks} banks",
                " / ".join(f"{clock:g}" for clock in clocks),
                f"{machine.hbm_chip_bytes >> 30} GiB",
            )
        )
    return table(("target", "SBUF", "PSUM", "Tensor / Vector / Scalar, GHz", "HBM of the chip"), rows)


def speeds() -> str:
    """Measure the benchmarks (minutes) and show them beside the bars they are held to."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rows = [
        (row["name"], f"{row['value']:.3g} {row['unit']}", f"{'≤' if row['at_most'] else '≥'} {row['bar']:g}")
        for row in json.loads(run.stdout)
    ]
    return table(("what", "measured", "bar"), rows)


SECTIONS: dict[str, Callable[[], str]] = {
    "instructions": instructions,
    "language": language,
    "dtypes": types,
    "targets": targets,
}


def replace(text: str, name: str, content: str) -> str:
    """`text` with the section `name` renewed. Raises LookupError if the markers are not there."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise LookupError(f"README.md has no section {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def readme_pages() -> dict[Path, str]:
    """README.md as it should be."""
    text = README.read_text(encoding="utf-8")
    for name, make in SECTIONS.items():
        text = replace(text, name, make())
    return {README: text}


def main(argv: list[str] | None = None) -> int:
    """Write the tables. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Renew the tables of README.md.")
    parser.add_argument("--benchmarks", action="store_true", help="measure the table of speeds too (minutes)")
    options = parser.parse_args(argv)
    wanted = readme_pages()
    if options.benchmarks:
        wanted[README] = replace(wanted[README], "speeds", speeds())
    return write(wanted)


if __name__ == "__main__":
    sys.exit(main())
