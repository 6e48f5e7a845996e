"""The repository's own source as files, syntax trees and names, for `test_architecture.py`. Tests nothing."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

INSTRUCTION_ROOMS = ("nki/isa", "nki/collectives")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files(*rooms: str, pattern: str = "*.py") -> list[Path]:
    """All files of some rooms, in a fixed order."""
    return sorted(
        path for room in rooms for path in (ROOT / room).rglob(pattern) if "__pycache__" not in path.parts
    )


def shown(path: Path) -> str:
    """A path as people write it."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def text_of(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


@functools.cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(text_of(path), shown(path))


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every function of a tree with its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            name = prefix + child.name
            if isinstance(child, Function):
                yield name, child
            yield from functions(child, name + ".")
        else:
            yield from functions(child, prefix)


def docstring_nodes(module: ast.Module) -> set[int]:
    """Identities of the constants that are documentation: every bare string statement."""
    return {
        id(n.value) for n in ast.walk(module) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    }


def instruction_classes() -> dict[str, list[str]]:
    """The instruction classes (public, lower-case, not abstract) that each file of the instruction rooms defines."""
    found = {}
    for path in files(*INSTRUCTION_ROOMS):
        classes = [c for c in tree(path).body if isinstance(c, ast.ClassDef) and c.bases]
        abstract = {c.name for c in classes if any(k.arg == "abstract" for k in c.keywords)}
        names = [c.name for c in classes if c.name == c.name.lower() and not c.name.startswith("_")]
        found[shown(path)] = [name for name in names if name not in abstract]
    return {path: names for path, names in found.items() if names}


def mnemonics() -> set[str]:
    """The names of all instructions."""
    return {name for names in instruction_classes().values() for name in names}


def check(faults: Iterable[str], remedy: str) -> None:
    """Fail with all faults and one sentence that says what to do."""
    found = list(faults)
    if found:
        pytest.fail("\n".join([*found, "", remedy]), pytrace=False)


def module_exists(name: str) -> bool:
    """Whether a module of this repository has been written."""
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a module imports absolutely, `from a import b` counted as `a.b`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def words(module: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Line, text and is-a-string of every identifier and every string that is not documentation."""
    documentation = docstring_nodes(module)
    for node in ast.walk(module):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield line, node.value, True
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield from ((line, part, False) for part in value.split("."))


def code_lines(function: Function) -> int:
    """Lines of a function without its decorators and its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        documentation = function.body[0]
        lines -= (documentation.end_lineno or documentation.lineno) - documentation.lineno + 1
    return lines
