"""README.md is true: its Python runs and prints what it says, its commands parse, its tables and links are current."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from nki.cli.main import _parser
from tests.source_tree import ROOT
from tools import readme
from tools.pages import stale

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
LARGEST_PICTURE = 300 * 1024


def blocks(language: str) -> list[tuple[str, str | None]]:
    """The code blocks of a language, each with the output that is shown right below it."""
    return [(code, output) for name, code, output in BLOCK.findall(TEXT) if name == language]


def output_of(code: str, name: str, names: dict[str, Any]) -> str:
    """What a block prints. Its source is kept where Python looks for it, so that kernels in it can be staged."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return printed.getvalue()


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns in texts need Python 3.11")
def test_python_prints_what_the_readme_says() -> None:
    pytest.importorskip("torch")
    names: dict[str, Any] = {"__name__": "readme"}
    for number, (code, expected) in enumerate(blocks("python")):
        first = re.match(r"# (\S+\.py)\n", code)
        printed = output_of(code, first[1] if first else f"block_{number}.py", names)
        assert printed.rstrip() == (expected or "").rstrip()


def test_commands_are_commands() -> None:
    lines = [line for code, _ in blocks("bash") for line in code.splitlines() if line.startswith("nki ")]
    assert lines
    for line in lines:
        _parser().parse_args(shlex.split(line)[1:])


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"(?:^|`)make ([a-z ]+)", TEXT, re.MULTILINE):
        for target in command.split():
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_tables_are_current() -> None:
    assert stale(readme.readme_pages()) == [], "renew them with: make docs"


def test_a_section_without_markers_is_said() -> None:
    with pytest.raises(LookupError, match="begin speeds"):
        readme.replace("no markers", "speeds", "")


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        links = LINK.findall(page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == [], page


def test_pictures_are_small() -> None:
    pictures = list(Path(ROOT / "docs/img").glob("*.png"))
    assert pictures
    assert [path.name for path in pictures if path.stat().st_size > LARGEST_PICTURE] == []
