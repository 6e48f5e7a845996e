"""`nki new-kernel`: the recipe of nki_lib/README.md, followed in a copy of the library and outside of one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nki.cli import main

ROOT = Path(__file__).parents[2]


def made(folder: Path) -> set[str]:
    """The files below a folder, relative to it."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python in a folder that stands before everything else on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the library, which is the current directory."""
    shutil.copytree(ROOT / "nki_lib", tmp_path / "nki_lib", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_recipe_leads_to_an_operator_that_passes_its_tests(library: Path) -> None:
    pytest.importorskip("torch")
    assert main(["new-kernel", "row_scale", "--family", "norm"]) == 0
    listed = set(
        re.findall(r"^   \| `([\w.]+)` \|", (ROOT / "nki_lib" / "README.md").read_text(), re.MULTILINE)
    )
    assert made(library / "nki_lib" / "norm" / "row_scale") == listed
    found = run(library, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/nki_lib/test_row_scale.py")
    assert found.returncode == 0, found.stdout + found.stderr
    door = library / "nki_lib" / "__init__.py"
    door.write_text(door.read_text() + "\nfrom nki_lib.norm.row_scale.api import row_scale\n")
    found = run(
        library, "-c", "import torch, nki_lib; print(nki_lib.row_scale(torch.ones(2, 3), 0.5).sum().item())"
    )
    assert found.stdout.strip() == "3.0", found.stderr


@pytest.mark.parametrize("family", ["attention", "norm"])
def test_what_is_made_obeys_the_rules_of_the_project(family: str, library: Path) -> None:
    assert main(["new-kernel", "row_scale", "--family", family]) == 0
    folders = (f"nki_lib/{family}/row_scale", "tests/nki_lib/test_row_scale.py")
    shutil.copy(ROOT / "pyproject.toml", library)
    (library / "nki").symlink_to(
        ROOT / "nki"
    )  # which imports are the project's own is decided by its folders
    for command in (("check",), ("format", "--check")):
        found = run(library, "-m", "ruff", *command, *folders)
        assert found.returncode == 0, found.stdout


def test_the_table_of_predicted_times_is_written(library: Path) -> None:
    assert main(["new-kernel", "row_scale"]) == 0
    code = (
        "from pathlib import Path; import tools.library_pages as pages; pages.ROOT = Path.cwd(); "
        "pages.write(Path('nki_lib/contributed/row_scale'))"
    )
    found = run(library, "-c", code)
    assert found.returncode == 0, found.stderr
    page = (library / "nki_lib" / "contributed" / "row_scale" / "README.md").read_text()
    assert "| 4096 x 2048, bfloat16 | trn2 |" in page and "| bandwidth |" in page


def test_outside_of_a_checkout_it_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-kernel", "row_scale"]) == 0
    assert {"row_scale/kernel.py", "row_scale/test_row_scale.py"} <= made(tmp_path)
    assert "nki_lib::" not in (tmp_path / "row_scale" / "op.py").read_text()
    code = (
        "import numpy as np; from row_scale.kernel import row_scale as kernel; "
        "print(kernel(np.ones((3, 4), 'float32'), 2.0).sum())"
    )
    assert run(tmp_path, "-c", code).stdout.strip() == "24.0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Row-Scale"], "'Row-Scale' cannot name a kernel"),
        (["class"], "'class' cannot name a kernel"),
        (["row_scale", "--family", "norm"], "needs a checkout of nki_lib"),
    ],
)
def test_bad_names(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-kernel", *words]) == 2
    assert message in capsys.readouterr().err and made(tmp_path) == set()


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-kernel", "row_scale"]) == 0
    (tmp_path / "row_scale" / "kernel.py").write_text("mine")
    assert main(["new-kernel", "row_scale"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "row_scale" / "kernel.py").read_text() == "mine"
