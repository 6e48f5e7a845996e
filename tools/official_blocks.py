"""Finding kernels in a checkout of the official documentation: in its pages, in the files they include."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"( *)(?:\.\. code(?:-block)?::\s*(?:python)?|(?!\s|\.\. ).*::)\s*$")
_INCLUDE = re.compile(r" *\.\. (?:nki_example|literalinclude)::\s*(\S+\.py)\s*$")
_OPTION = re.compile(r"\s*:[\w-]+:")


@dataclass(frozen=True)
class Block:
    """A piece of Python in the documentation: where it stands, its text, the folder its own imports are found in."""

    page: str
    line: int
    text: str
    folder: Path | None = None


def blocks(checkout: Path) -> Iterator[Block]:
    """Every block that may hold kernels; a file that several pages include comes once."""
    documentation = checkout / "nki"
    pages = [*documentation.glob("api/nki/**/__init__.py"), *documentation.glob("**/*.rst")]
    included: dict[Path, None] = {}
    for page in sorted(pages):
        name = page.relative_to(checkout).as_posix()
        if name.startswith("nki/library/"):
            continue
        source = page.read_text(encoding="utf-8")
        lines = _docstrings(source) if page.suffix == ".py" else source.splitlines()
        for line, text in _code(lines):
            yield Block(name, line, text)
        for found in filter(None, map(_INCLUDE.match, lines)):
            base = checkout if found[1].startswith("/") else page.parent
            included[(base / found[1].lstrip("/")).resolve()] = None
    for path in filter(Path.exists, included):
        where = path.relative_to(checkout.resolve()).as_posix()
        yield Block(where, 1, path.read_text(encoding="utf-8"), path.parent)


def _code(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The text of each block and the number of its first line."""
    for at, line in enumerate(lines):
        found = _BLOCK.match(line)
        if not found:
            continue
        body: list[str] = []
        for each in lines[at + 1 :]:
            if each.strip() and len(each) - len(each.lstrip()) <= len(found[1]):
                break
            body.append("" if not any(body) and _OPTION.match(each) else each)
        yield at + 2, textwrap.dedent("\n".join(body))


def _docstrings(source: str) -> list[str]:
    """The lines of a module which are in docstrings, at their places; all other lines are empty."""
    lines = [""] * (source.count("\n") + 1)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                first = node.body[0].lineno - 1
                found = text.splitlines()
                lines[first : first + len(found)] = found
    return lines
