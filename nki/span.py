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
from types import CodeType, FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MACHINE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "interpreter") + os.sep


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

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


UNKNOWN = Span((Frame("<unknown>", 0, "<unknown>"),))
"""The span of things that have no source, e.g. instructions of a hand-written `.nkir` file."""

_is_user: dict[int, tuple[CodeType, bool, bool]] = {}
_interned: dict[tuple[int, ...], tuple[Span, tuple[CodeType, ...]]] = {}
_stop_codes: set[int] = set()


def stop_at(code: CodeType) -> None:
    """Declare the frame of `code` as the border below which no user frame is looked for (the staging driver)."""
    _stop_codes.add(id(code))


def is_user_code(code: CodeType) -> bool:
    """Whether a code object belongs to the user and not to this package."""
    return (_is_user.get(id(code)) or _classify(code))[1]


def _classify(code: CodeType) -> tuple[CodeType, bool, bool]:
    name = code.co_filename
    inside = name.startswith(_PACKAGE) or name.startswith(_MACHINE)
    frozen = name.startswith("<frozen") or (name.startswith("<") and "nki" in name)
    entry = (code, not inside and not frozen, id(code) in _stop_codes)
    _is_user[id(code)] = entry
    return entry


def capture(skip: int = 1) -> Span:
    """The span of the caller, `skip` frames up. Costs about a microsecond once a call site is known."""
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
    return Frame(code.co_filename, line or 0, getattr(code, "co_qualname", code.co_name), column, end_column)


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
