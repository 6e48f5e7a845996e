"""Every notebook under tutorials/ runs from top to bottom, and shows what it showed when it was saved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.ipynb"))
LARGEST_BYTES = 400_000
MACHINE_PATHS = ("/tmp/", "/home/", "/root/", "/Users/", "site-packages", "ipykernel_", str(ROOT))


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns in texts need Python 3.11")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_shows_what_it_showed(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tools.tutorials", "--check", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_saved_with_its_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert [cell.source.split("\n")[0] for cell in code if not cell.outputs and "print(" in cell.source] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_small_and_names_no_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < LARGEST_BYTES
    assert [part for part in MACHINE_PATHS if part in text] == []


def test_there_is_a_first_tutorial() -> None:
    assert (ROOT / "tutorials/01_first_kernel.ipynb") in NOTEBOOKS
