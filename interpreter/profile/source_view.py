"""The source panel of the page: the user's lines with the time each takes, and a few lines around them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interpreter.profile.measures import PS_PER_US, LineTime
from interpreter.profile.parts import Part, stacked
from interpreter.profile.remarks import Places
from interpreter.profile.sources import UNKNOWN_FILE, shown_ranges, source_lines
from interpreter.profile.units import share_text, time_text, title

if TYPE_CHECKING:
    from interpreter.profile.profile import Profile


@dataclass(frozen=True)
class SourceRow:
    """One line of code, or a gap where lines are left out."""

    number: int
    text: str
    time: str = ""
    hint: str = ""
    parts: tuple[Part, ...] = ()
    line: int = -1
    gap: bool = False


@dataclass(frozen=True)
class SourceFile:
    """One file with the lines worth showing."""

    name: str
    note: str
    rows: tuple[SourceRow, ...]


def source_files(profile: Profile, places: Places) -> tuple[SourceFile, ...]:
    """The files of a program, the one with most time first."""
    by_file: defaultdict[str, dict[int, tuple[int, LineTime]]] = defaultdict(dict)
    for number, line in enumerate(profile.lines):
        by_file[line.file][line.line] = (number, line)
    longest = max((line.total_us for line in profile.lines), default=1.0) or 1.0
    order = sorted(by_file, key=lambda file: -sum(line.total_us for _, line in by_file[file].values()))
    return tuple(_file(file, by_file[file], places, longest) for file in order)


def _file(file: str, lines: dict[int, tuple[int, LineTime]], places: Places, longest: float) -> SourceFile:
    text = source_lines(file)
    share = sum(line.share for _, line in lines.values())
    rows: list[SourceRow] = []
    for first, last in shown_ranges(list(lines), len(text)):
        if first > 1:
            rows.append(SourceRow(0, "", gap=True))
        rows += [
            _row(number, text[number - 1], lines.get(number), longest) for number in range(first, last + 1)
        ]
    rows += [_row(number, "", lines[number], longest) for number in sorted(lines) if number > len(text)]
    name = "without source" if file == UNKNOWN_FILE else places.names.get(file, file)
    return SourceFile(name, f"{share_text(share)} of the time", tuple(rows))


def _row(number: int, text: str, found: tuple[int, LineTime] | None, longest: float) -> SourceRow:
    if found is None:
        return SourceRow(number, text)
    index, line = found
    times = [(us, unit, f"{title(unit)} {time_text(us * PS_PER_US)}") for unit, us in line.engines_us.items()]
    count = f"{line.instructions:,} instruction" + ("s" if line.instructions != 1 else "")
    hint = [f"{count} in {line.function}", *(label for _, _, label in times)]
    if line.critical_us:
        hint.append(f"on the critical path {time_text(line.critical_us * PS_PER_US)}")
    return SourceRow(
        number=number,
        text=text,
        time=share_text(line.share),
        hint="\n".join(hint),
        parts=stacked([(us, f"--{unit}", label) for us, unit, label in times], longest),
        line=index,
    )
