"""Which pass of which host loop an error or an instruction belongs to: `i=0`, read from the frames.

A loop that is unrolled stages the same line many times; the values of its variables tell the passes apart.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import numpy as np

from nki.frontend.source import file_index
from nki.span import is_border, is_user_code

_MOST = 40
"""Characters of a value that are shown."""


def loop_values(error: BaseException) -> list[str]:
    """`name=value` of the variables of the `for` statements around the failing lines, from the outermost in."""
    found: list[str] = []
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if is_user_code(frame.f_code):
            found += _values(frame, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def current_pass() -> tuple[str, ...]:
    """The same of the call that is being staged, for the instruction it makes."""
    found: tuple[str, ...] = ()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_border(frame.f_code):
        if is_user_code(frame.f_code):
            key = (id(frame.f_code), frame.f_lasti)
            known = _known.get(key)
            if known is None:
                known = _known[key] = (frame.f_code, _loop_variables(frame, frame.f_lineno))
            if known[1]:
                found = (*_values_of(frame, known[1]), *found)
        frame = frame.f_back
    return found


_known: dict[tuple[int, int], tuple[CodeType, tuple[str, ...]]] = {}


def _values(frame: FrameType, line: int) -> Iterator[str]:
    return _values_of(frame, _loop_variables(frame, line))


def _loop_variables(frame: FrameType, line: int) -> tuple[str, ...]:
    index = file_index(frame.f_code.co_filename, frame.f_globals)
    source = index.function(frame.f_code) if index is not None else None
    return tuple(_names(source.node.body, line)) if source is not None else ()


def _values_of(frame: FrameType, names: tuple[str, ...]) -> Iterator[str]:
    values = frame.f_locals
    for name in names:
        value = values.get(name)
        if isinstance(value, (int, float, str, np.integer)):
            yield f"{name}={_shown(value)}"


def _names(statements: list[ast.stmt], line: int) -> Iterator[str]:
    """The variables of the loops whose bodies contain a line; functions defined inside have frames of their own."""
    for statement in statements:
        inside = statement.lineno <= line <= (statement.end_lineno or statement.lineno)
        if not inside or isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(statement, ast.For) and statement.body[0].lineno <= line:
            yield from (node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name))
        for part in ("body", "orelse", "finalbody", "handlers"):
            for child in getattr(statement, part, ()):
                yield from _names(child.body if isinstance(child, ast.ExceptHandler) else [child], line)


def _shown(value: Any) -> str:
    text = repr(int(value) if isinstance(value, np.integer) else value)
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."
