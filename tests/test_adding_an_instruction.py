"""An instruction is one file, one import line and one test file: proved by adding one to a copy of the repository.

`data/tensor_clamp.py` becomes an instruction of the copy and `data/tensor_clamp_cases.py` its test. A process of its
own, started in the copy, then runs the checks of `added_instruction.py`, one of which does what `make docs` does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nki.isa  # noqa: F401 - fills the registry
from nki.ir import REGISTRY
from tests.added_instruction import CHECKS, NAME, PAGES
from tests.source_tree import ROOT

DATA = ROOT / "tests" / "data"
ADDED = {f"nki/isa/{NAME}.py": f"{NAME}.py", f"tests/isa/test_{NAME}.py": f"{NAME}_cases.py"}
FRONT_DOOR = "nki/isa/__init__.py"
IMPORT = f"from nki.isa.{NAME} import {NAME} as {NAME}\n"
FOLDERS = ("nki", "interpreter", "neuronxcc", "tools", "tests", "docs")
FILES = ("README.md", "pyproject.toml")


def texts(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file that somebody has written."""
    for path in folder.rglob("*"):
        if path.is_file() and not {"__pycache__", ".hypothesis"}.intersection(path.parts):
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def copy_to(folder: Path) -> None:
    """The repository as it is. Byte code comes along, which saves a second; that of pytest holds the old paths."""
    left_out = shutil.ignore_patterns("*-pytest-*.pyc", "*.pyc.*", "golden")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for name in FILES:
        shutil.copy2(ROOT / name, folder / name)


def add_to(folder: Path) -> None:
    """All that a contributor writes."""
    for path, kept in ADDED.items():
        shutil.copy2(DATA / kept, folder / path)
    front_door = folder / FRONT_DOOR
    text = front_door.read_text(encoding="utf-8")
    where = next(m.start() for m in re.finditer(r"^from nki\.isa\.(\w+)", text, re.MULTILINE) if m[1] > NAME)
    front_door.write_text(text[:where] + IMPORT + text[where:], encoding="utf-8")


@pytest.mark.slow
def test_one_file_one_line_one_test(tmp_path: Path) -> None:
    assert NAME not in REGISTRY, "it exists: take another example"
    copy_to(tmp_path)
    before = dict(texts(tmp_path))
    add_to(tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "tests.added_instruction"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if run.returncode:
        remedy = "An instruction needs more than its file now: read it from the class instead."
        pytest.fail(f"{run.stdout}\n{run.stderr}\n{remedy}", pytrace=False)
    assert run.stdout.split() == [check.__name__ for check in CHECKS]
    changed = {path for path, text in texts(tmp_path) if before.get(path) != text}
    assert changed == {*ADDED, FRONT_DOOR, *PAGES}


def test_the_example_of_the_guide_is_this_one() -> None:
    """docs/architecture.md shows the class."""
    guide = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (shown,) = (code for code in blocks if f"class {NAME}" in code)
    assert shown in (DATA / f"{NAME}.py").read_text(encoding="utf-8")
