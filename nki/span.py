"""Where in the user's source an instruction, a tensor or a mistake comes from.

A `Span` is the chain of user frames that were active when something was staged, innermost first. Frames of this
package are left out, so that a line of a kernel is named and not the inside of `nl.load`. Spans are interned: an
instruction in a loop shares one object with all its iterations, and line numbers and columns are worked out only
for the first.
"""

from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass
from itertools import groupby
from types import CodeType, FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MACHINE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "interpreter") + os.sep
_NOTEBOOK = os.path.join("IPython", "core", "interactiveshell.py")
"""What calls a notebook's cells: below it lies nothing of the user's."""


@dataclass(frozen=True)
class Frame:
    """One level of a call chain. Columns are 0-based and `None` where Python does not tell them (3.10)."""

    file: str
    line: int
    function: str
    column: int | None = None
    end_column: int | None = None

    @property
    def text(self) -> str:
        """The source line, without its newline; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f", in {self.function}" if self.function else "")


@dataclass(frozen=True)
class Span:
    """A chain of user frames, innermost first. `frames` is never empty."""

    frames: tuple[Frame, ...]

    @property
    def file(self) -> str:
        """File of the innermost user frame."""
        return self.frames[0].file

    @property
    def line(self) -> int:
        """Line of the innermost user frame, counted from 1."""
        return self.frames[0].line

    @property
    def function(self) -> str:
        """Name of the innermost user function."""
        return self.frames[0].function

    def excerpt(self) -> list[str]:
        """The lines of an error text that show where: file, line, code with a caret, and the chain of calls."""
        if self == UNKNOWN:
            return []
        inner = self.frames[0]
        lines = [f"  --> {inner}"]
        text = inner.text
        if text.strip():
            number = f"{inner.line:5d} | "
            lines.append(number + text)
            start = _characters(text, inner.column, len(text) - len(text.lstrip()))
            end = _characters(text, inner.end_column, len(text))
            indent = "".join(c if c == "\t" else " " for c in text[:start])
            lines.append(" " * (len(number) - 2) + "| " + indent + "^" * max(1, end - start))
        return lines + self.calls()

    def calls(self) -> list[str]:
        """The lines of an error text that name the chain of calls."""
        return _call_chain(list(self.frames[1:]))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


_CALLS_SHOWN = 6
"""How many places of a long call chain are listed at each end."""


def _call_chain(frames: list[Frame]) -> list[str]:
    calls = [(place, len(list(same))) for place, same in groupby(map(str, frames))]
    lines = [f"      called from {place}" + (f" ({n} times)" if n > 1 else "") for place, n in calls]
    left_out = len(lines) - 2 * _CALLS_SHOWN
    if left_out > 1:
        lines[_CALLS_SHOWN:-_CALLS_SHOWN] = [f"      ... and {left_out} more calls ..."]
    return lines


def _characters(text: str, column: int | None, unknown: int) -> int:
    """A column, which Python counts in bytes of UTF-8, counted in characters."""
    return unknown if column is None else len(text.encode()[:column].decode(errors="ignore"))


UNKNOWN = Span((Frame("<unknown>", 0, "<unknown>"),))
"""The span of things that have no source, e.g. instructions of a hand-written `.nkir` file."""

_is_user: dict[int, tuple[CodeType, bool, bool]] = {}
_interned: dict[tuple[int, ...], tuple[Span, tuple[CodeType, ...]]] = {}
_stop_codes: set[int] = set()


def stop_at(code: CodeType) -> None:
    """Declare the frame of `code` as the border below which no user frame is looked for (the staging driver)."""
    _stop_codes.add(id(code))


def is_border(code: CodeType) -> bool:
    """Whether a code object is the staging driver, below which nothing is the user's kernel."""
    return id(code) in _stop_codes


def is_user_code(code: CodeType) -> bool:
    """Whether a code object belongs to the user and not to this package."""
    return (_is_user.get(id(code)) or _classify(code))[1]


def _classify(code: CodeType) -> tuple[CodeType, bool, bool]:
    name = code.co_filename
    inside = name.startswith(_PACKAGE) or name.startswith(_MACHINE)
    frozen = name.startswith("<frozen") or (name.startswith("<") and "nki" in name)
    stop = id(code) in _stop_codes or name.endswith(_NOTEBOOK)
    entry = (code, not inside and not frozen, stop)
    _is_user[id(code)] = entry
    return entry


def capture(skip: int = 1) -> Span:
    """The span of the caller, `skip` frames up. Costs about a microsecond once a call site is known.

    Inside a kernel it goes down to the kernel itself, outside it is the innermost user frame alone.
    """
    frame: FrameType | None = sys._getframe(skip)
    key: list[int] = []
    while frame is not None:
        code = frame.f_code
        entry = _is_user.get(id(code)) or _classify(code)
        if entry[2]:
            break
        if entry[1]:
            key.append(id(code))
            key.append(frame.f_lasti)
        frame = frame.f_back
    found = _interned.get(tuple(key))
    return found[0] if found is not None else _intern(tuple(key), sys._getframe(skip))


def _intern(key: tuple[int, ...], frame: FrameType | None) -> Span:
    frames: list[Frame] = []
    codes: list[CodeType] = []
    while frame is not None:
        code = frame.f_code
        _, user, stop = _is_user.get(id(code)) or _classify(code)
        if stop:
            break
        if user:
            codes.append(code)
            frames.append(_frame_of(code, frame.f_lasti, frame.f_lineno))
        frame = frame.f_back
    else:
        del frames[1:]  # outside of a kernel: what called the caller is no part of it
    span = Span(tuple(frames)) if frames else UNKNOWN
    _interned[key] = (span, tuple(codes))
    return span


def _frame_of(code: CodeType, lasti: int, line: int | None) -> Frame:
    column = end_column = None
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        for index, (first, last, start, end) in enumerate(positions()):
            if index * 2 == lasti:
                if first is not None:
                    line = first
                column = start
                end_column = end if first == last else None
                break
    file = shown_file(code.co_filename)
    return Frame(file, line or 0, getattr(code, "co_qualname", code.co_name), column, end_column)


def shown_file(file: str) -> str:
    """What a file is called: `Cell In[3]` for a notebook's cell, whose file changes with every session, else `file`."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    label_and_name = name_of(file) if name_of is not None else None
    if label_and_name is None:
        return file
    shown = " ".join(label_and_name)
    linecache.cache[shown] = linecache.cache.get(file, (0, None, [], file))
    return shown


def from_traceback(error: BaseException) -> Span:
    """The chain of user frames of an exception's traceback, innermost first."""
    frames: list[Frame] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        _, user, stop = _is_user.get(id(code)) or _classify(code)
        if stop:
            frames.clear()
        elif user:
            frames.append(_frame_of(code, traceback.tb_lasti, traceback.tb_lineno))
        traceback = traceback.tb_next
    return Span(tuple(reversed(frames))) if frames else UNKNOWN
