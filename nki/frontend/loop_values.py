"""Which pass of which host loop an error belongs to: `i=0`, read from the frames of its traceback.

Only errors ask for it, so nothing is recorded while a kernel is staged. A loop that is unrolled stages the same line
many times; the values of its variables tell the passes apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

from nki.frontend.source import file_index
from nki.span import is_user_code

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


def _values(frame: FrameType, line: int) -> Iterator[str]:
    code = frame.f_code
    index = file_index(code.co_filename, frame.f_globals)
    source = index.function(code) if index is not None else None
    if source is None:
        return
    for name in _names(source.node.body, line):
        value = frame.f_locals.get(name)
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
