"""The source of a function: its syntax tree and its lines, with the positions of the real file.

Whole files are parsed once and kept; a function is then found by its first line and its name. So lines and columns
need no shifting, strings that reach into column 0 do no harm, and the enclosing class is known (private names).
A function without source (built in, typed at a prompt, made by `exec`) has none, and that is never an exception.
`callsite` tells which statement made a call, `rewrite` what of a tree is replaced.
"""

from __future__ import annotations

import ast
import linecache
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from nki.frontend.codes import CodeTable

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_MAX_FILES = 64
_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True, eq=False)
class FunctionSource:
    """One function as it stands in its file.

    `first_line` is the line of the first decorator or of `def`; `lines` are the whole lines from there to the end;
    `node` is shared and must not be changed (`fresh_tree` gives a private copy); `class_name` is the innermost class
    the function is written in, directly or through other functions.
    """

    file: str
    name: str
    first_line: int
    end_line: int
    lines: tuple[str, ...]
    node: FunctionNode
    class_name: str | None

    @property
    def text(self) -> str:
        """The source text, indentation included."""
        return "".join(self.lines)

    def line(self, number: int) -> str:
        """The text of line `number` of the file, without its newline; empty outside the function."""
        index = number - self.first_line
        return self.lines[index].rstrip("\r\n") if 0 <= index < len(self.lines) else ""

    def fresh_tree(self) -> FunctionNode:
        """A new tree of the function, free to be changed, with the positions of the real file."""
        first = self.lines[0]
        indented = first[:1].isspace()
        if indented and self.first_line < 2:
            raise SyntaxError("an indented function on the first line of a file")
        head = "\n" * (self.first_line - 2) + "if 1:\n" if indented else "\n" * (self.first_line - 1)
        for node in ast.walk(_parse(head + self.text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return node
        raise SyntaxError("no function in its own source")


class FileIndex:
    """One parsed file: the functions in it by first line and name. `tree` is also read by `callsite`."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self.file = file
        self.lines = lines
        self.tree = _parse("".join(lines))
        self._functions = {
            (_first_line(node), node.name): (node, owner) for node, owner in _functions(self.tree, None)
        }

    def function(self, code: CodeType) -> FunctionSource | None:
        """The source of the function compiled to `code`."""
        found = self._functions.get((code.co_firstlineno, code.co_name))
        if found is None:
            return None
        node, owner = found
        first, end = code.co_firstlineno, node.end_lineno or code.co_firstlineno
        lines = tuple(self.lines[first - 1 : end])
        return FunctionSource(self.file, node.name, first, end, lines, node, owner)


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():  # e.g. an invalid escape: Python has already said so once
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _first_line(node: FunctionNode) -> int:
    return node.decorator_list[0].lineno if node.decorator_list else node.lineno


def _functions(tree: ast.AST, owner: str | None) -> Iterator[tuple[FunctionNode, str | None]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node, owner
        yield from _functions(node, node.name if isinstance(node, ast.ClassDef) else owner)


_files: dict[str, FileIndex | None] = {}
_sources: CodeTable[FunctionSource | None] = CodeTable()


def file_index(file: str, module_globals: Mapping[str, Any] | None = None) -> FileIndex | None:
    """The parsed file, or None if it cannot be read or parsed. Parsed again only if its text has changed."""
    linecache.checkcache(file)
    lines = linecache.getlines(file, dict(module_globals) if module_globals else None)
    known = _files.get(file)
    if known is not None and (known.lines is lines or known.lines == lines):
        return known
    while len(_files) >= _MAX_FILES:
        _files.pop(next(iter(_files)), None)
    try:
        index = FileIndex(file, lines) if lines else None
    except _UNPARSABLE:
        index = None
    _files[file] = index
    return index


def plain_function(fn: object) -> FunctionType | None:
    """The Python function behind `fn` (a function or a bound method), or None. `__wrapped__` is not followed."""
    if isinstance(fn, MethodType):
        fn = fn.__func__
    return fn if isinstance(fn, FunctionType) else None


def function_source(fn: object) -> FunctionSource | None:
    """The source of a function or method, or None if it has none (or is a lambda). Kept per code object."""
    function = plain_function(fn)
    if function is None:
        return None
    code = function.__code__
    if code in _sources:
        return _sources.get(code)
    index = None if code.co_name == "<lambda>" else file_index(code.co_filename, function.__globals__)
    return _sources.put(code, index.function(code) if index is not None else None)
