"""A `Note`, and how notes name the places they speak about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from interpreter.profile.reading import Reading
from interpreter.profile.sources import UNKNOWN_FILE, short_names


class Note(str):
    """One sentence or two about a bottleneck: a plain string that also says what it is about.

    code: the rule that made it.  share: the part of the latency it concerns, as far as it lies on the critical path.
    file, line: where ("" and 0: nowhere).
    """

    code: str
    share: float
    file: str
    line: int

    def __new__(cls, text: str, *, code: str = "", share: float = 0.0, file: str = "", line: int = 0) -> Note:
        note = super().__new__(cls, text)
        note.code, note.share, note.file, note.line = code, share, file, line
        return note


class Places:
    """Source places of a program with names as short as they can be."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.names = short_names(span.file for span in {i.span for i in reading.instructions})

    def place(self, file: str, line: int) -> str:
        """`kernel.py:12`; empty for what has no source."""
        return f"{self.names.get(file, file)}:{line}" if file and file != UNKNOWN_FILE else ""

    def of(self, number: int) -> str:
        """The place of an instruction."""
        span = self._reading.span(number)
        return self.place(span.file, span.line)

    def at(self, number: int) -> str:
        """` at kernel.py:12`, or nothing."""
        place = self.of(number)
        return f" at {place}" if place else ""

    def named(self, number: int) -> str:
        """The place of an instruction, or its number where it has none."""
        return self.of(number) or (f"instruction {number}" if number >= 0 else "no one place")

    def note(self, text: str, code: str, ps: float, number: int) -> Note:
        """A note about `ps` of the run, placed at an instruction."""
        span = self._reading.span(number)
        share = min(1.0, ps / self._reading.latency_ps)
        return Note(text, code=code, share=share, file=span.file, line=span.line)

    def heaviest(self, times: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Of (instruction, time) pairs: an instruction of the line with most time, and that line's time."""
        total: defaultdict[tuple[str, int], int] = defaultdict(int)
        member: dict[tuple[str, int], int] = {}
        for number, ps in times:
            span = self._reading.span(number)
            total[span.file, span.line] += ps
            member.setdefault((span.file, span.line), number)
        place = max(total, key=lambda p: (total[p], p))
        return member[place], total[place]
