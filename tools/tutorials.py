"""`python -m tools.tutorials [NOTEBOOK ...]`: run the notebooks under tutorials/ and keep their outputs in them.

With `--check` nothing is written: the exit code says whether every cell ran and every text is still the one that is
kept. A cell that is meant to fail carries the tag `raises-exception`.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from tools.pages import ROOT

TUTORIALS = ROOT / "tutorials"
_SECONDS_PER_CELL = 60
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def notebooks() -> list[Path]:
    """All tutorials, in order."""
    return sorted(TUTORIALS.glob("*.ipynb"))


def run(path: Path) -> NotebookNode:
    """The notebook, executed in a fresh kernel of this very Python. Raises CellExecutionError at a cell that fails."""
    notebook = nbformat.read(path, as_version=4)
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=_SECONDS_PER_CELL,
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=40"],
        resources={"metadata": {"path": str(TUTORIALS)}},
    )
    client.execute(env=_environment())
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def _environment() -> dict[str, str]:
    """One thread, no options of the caller's, and this checkout's packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NKI_", "NEURON_"))}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def texts(notebook: NotebookNode) -> Iterator[str]:
    """What a reader sees below each code cell, as lines of text; memory addresses are made alike."""
    for number, cell in enumerate(each for each in notebook.cells if each.cell_type == "code"):
        yield f"cell {number + 1}"
        for output in cell.outputs:
            shown = output.get("text") or output.get("evalue") or output.get("data", {}).get("text/plain", "")
            yield from _ADDRESS.sub("0x...", _COLOUR.sub("", shown)).rstrip().split("\n")


def difference(path: Path, executed: NotebookNode) -> list[str]:
    """Lines of a diff between the outputs that are kept and those of this run; empty if they agree."""
    kept = list(texts(nbformat.read(path, as_version=4)))
    name = path.relative_to(ROOT).as_posix()
    return list(difflib.unified_diff(kept, list(texts(executed)), name, "this run", lineterm=""))


def write(path: Path, executed: NotebookNode) -> None:
    """Keep the outputs in the file."""
    path.write_text(nbformat.writes(executed, indent=1) + "\n", encoding="utf-8", newline="\n")


def main(argv: list[str] | None = None) -> int:
    """Run, then write or compare. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Run the tutorials and keep their outputs.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of tutorials/")
    parser.add_argument("--check", action="store_true", help="compare the outputs instead of writing them")
    options = parser.parse_args(argv)
    failed = False
    for path in [each.resolve() for each in options.notebooks] or notebooks():
        try:
            executed = run(path)
        except CellExecutionError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            failed = True
            continue
        if not options.check:
            write(path, executed)
            print(f"ran {path.name}")
            continue
        changed = difference(path, executed)
        failed = failed or bool(changed)
        print("\n".join(changed) or f"{path.name} is current")
    if failed and options.check:
        print("If the new outputs are right: python -m tools.tutorials", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
