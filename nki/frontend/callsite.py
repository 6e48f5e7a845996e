"""What stands at a call: the position of the expression, and the variable that receives its result.

Tiles are named after the user's variables: in `a_tile = nl.ndarray(...)` the call site is named `a_tile`. Python
3.11 and later know the position of the very call; before, only its line is known, and a name is given when the line
leaves no doubt.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from types import CodeType

from nki.frontend.codes import CodeTable
from nki.frontend.source import FileIndex, file_index

Position = tuple[int, int, int, int]
"""`(lineno, end_lineno, col, end_col)`; columns are 0-based byte offsets, as in `ast`."""

_RawPosition = tuple[int | None, int | None, int | None, int | None]
_names: CodeTable[dict[int, str | None]] = CodeTable()
_spans: CodeTable[list[_RawPosition]] = CodeTable()


def call_site_name(code: CodeType, lasti: int, lineno: int) -> str | None:
    """The variable that the statement assigns the result of the call at `lasti` to; None if there is not exactly one.

    `x = f()`, `x: T = f()`, `(x := f())`, `a, b = f(), g()` and `self.x = f()` name `x` (`a`, `b`, `x`); a call inside
    another expression has no name.
    """
    known = _names.values.get(id(code))
    if known is None:
        known = _names.put(code, {})
    try:
        return known[lasti]
    except KeyError:
        name = known[lasti] = _find_name(code, lasti, lineno)
        return name


def call_site_span(code: CodeType, lasti: int) -> Position | None:
    """Where the expression evaluated at `lasti` begins and ends, or None if this Python does not tell."""
    positions = _spans.get(code)
    if positions is None:
        tell = getattr(code, "co_positions", None)
        positions = _spans.put(code, list(tell()) if tell is not None else [])
    index = lasti // 2
    if not 0 <= index < len(positions):
        return None
    line, end_line, col, end_col = positions[index]
    if line is None or end_line is None or col is None or end_col is None:
        return None
    return line, end_line, col, end_col


class _Assignments:
    """The calls of one file whose result goes to a variable, by position and by line."""

    def __init__(self, tree: ast.AST) -> None:
        self.by_position: dict[Position, str] = {}
        self.by_line: dict[int, str | None] = {}
        calls: dict[int, int] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and not _is_builtin(node.func):
                calls[node.lineno] = calls.get(node.lineno, 0) + 1
            for name, call in _named_calls(node):
                self.by_position[_position(call)] = name
                self.by_line[call.lineno] = name
        for line in self.by_line:
            if calls.get(line, 0) != 1:
                self.by_line[line] = None


_assignments: dict[str, tuple[FileIndex, _Assignments]] = {}


def _find_name(code: CodeType, lasti: int, lineno: int) -> str | None:
    index = file_index(code.co_filename)
    if index is None:
        return None
    known = _assignments.get(index.file)
    if known is None or known[0] is not index:
        known = _assignments[index.file] = (index, _Assignments(index.tree))
    span = call_site_span(code, lasti)
    return known[1].by_line.get(lineno) if span is None else known[1].by_position.get(span)


def _is_builtin(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and hasattr(builtins, function.id)


def _position(node: ast.expr) -> Position:
    return (
        node.lineno,
        node.end_lineno or node.lineno,
        node.col_offset,
        node.end_col_offset or node.col_offset,
    )


def _named_calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        yield from _pairs(node.targets[0], node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield from _pairs(node.target, node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.Call]]:
    if isinstance(value, ast.Call):
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Attribute):
            yield target.attr, value
    elif (
        isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
    ):
        for one_target, one_value in zip(target.elts, value.elts):
            yield from _pairs(one_target, one_value)
