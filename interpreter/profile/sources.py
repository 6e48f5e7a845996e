"""The user's source as the profile shows it: which files, which text, how their names are shortened.

A program names the files it came from, and a `.nkir` file may name anything. Only Python source is ever opened, as
text; a name that is not a `.py` file is shown but not read.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable, Sequence

UNKNOWN_FILE = "<unknown>"


def is_readable_source(file: str) -> bool:
    """Whether a file's text may be shown: Python files, and notebook cells that Python itself keeps in memory."""
    return file.endswith(".py") or _is_in_memory(file)


def _is_in_memory(file: str) -> bool:
    """Whether Python keeps the text without a file behind it: such an entry has no modification time."""
    entry = linecache.cache.get(file)
    return entry is not None and len(entry) > 1 and entry[1] is None


def source_lines(file: str) -> list[str]:
    """The lines of a source file without their newlines; empty if it cannot be read."""
    if not is_readable_source(file):
        return []
    return [line.rstrip("\n") for line in linecache.getlines(file)]


def source_line(file: str, line: int) -> str:
    """One line, stripped; empty if there is none."""
    lines = source_lines(file)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def short_names(files: Iterable[str]) -> dict[str, str]:
    """A short name per file: its last part, with as many folders as keep the names apart."""
    parts = {file: _parts(file) for file in dict.fromkeys(files)}
    return {file: _shortest(file, parts) for file in parts}


def _parts(file: str) -> list[str]:
    return [part for part in file.replace(os.sep, "/").split("/") if part] or [file]


def _shortest(file: str, parts: dict[str, list[str]]) -> str:
    own = parts[file]
    for count in range(1, len(own) + 1):
        if all(other[-count:] != own[-count:] for name, other in parts.items() if name != file):
            return "/".join(own[-count:])
    return file


def shown_ranges(lines: Sequence[int], length: int, around: int = 4, join: int = 8) -> list[tuple[int, int]]:
    """First and last line of the pieces of a file worth showing: `around` lines about each of `lines`."""
    ranges: list[tuple[int, int]] = []
    for line in sorted(set(lines)):
        first, last = max(1, line - around), min(length, line + around)
        if ranges and first <= ranges[-1][1] + join:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        elif first <= last:
            ranges.append((first, last))
    return ranges
