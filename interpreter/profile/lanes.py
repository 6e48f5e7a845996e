"""The bars of the timeline page: one lane per engine, per DMA queue and per on-chip memory, merged to a bearable number.

A bar thinner than a slot of the lane's resolution is merged with its neighbours in that slot, so the number of bars
is bounded by the resolution and not by the program. The page draws columns: one list per property.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from interpreter.profile.units import share_text

FINEST: Final = 1 << 16
"""Slots a lane is divided into at first."""

FULL: Final = 1000
"""Height of a lane; the tops and heights of its bars are parts of it."""


class Bar(NamedTuple):
    """One rectangle. `text` and `why` are what the tooltip says, `line` an index into the lines of the profile."""

    start: int
    length: int
    top: int
    height: int
    color: str
    head: str
    text: str = ""
    line: int = -1
    number: int = -1
    after: int = 0
    waited: int = 0
    why: str = ""
    wait: bool = False
    light: bool = False


@dataclass(frozen=True)
class Lane:
    """A row of the timeline. `labels`: write names into wide bars; `overview`: show it in the strip of the whole run."""

    name: str
    detail: str
    swatch: str
    height: int
    gap: int
    bars: tuple[Bar, ...]
    labels: bool = True
    overview: bool = True


def rows_of(spans: Sequence[tuple[int, int]], most: int) -> list[int]:
    """A row for each span (sorted by start) such that spans of one row do not overlap, as far as `most` rows allow."""
    ends: list[int] = []
    rows = []
    for start, end in spans:
        row = next((r for r, busy in enumerate(ends) if busy <= start), None)
        if row is None and len(ends) < most:
            row = len(ends)
            ends.append(end)
        elif row is None:
            row = min(range(len(ends)), key=ends.__getitem__)
        ends[row] = max(ends[row], end)
        rows.append(row)
    return rows


def thinned(lanes: Sequence[Lane], end: int, most: int) -> tuple[Lane, ...]:
    """The lanes with their thinnest bars merged until at most about `most` bars are left."""
    result = tuple(lanes)
    slots = FINEST
    while sum(len(lane.bars) for lane in result) > most and slots > most // (8 * max(1, len(lanes))):
        slots //= 2
        result = tuple(replace(lane, bars=tuple(merged(lane.bars, max(1, end // slots)))) for lane in lanes)
    return result


def merged(bars: Iterable[Bar], slot: int) -> Iterator[Bar]:
    """Bars in order of start; those shorter than `slot` that share row, colour and slot become one."""
    open_groups: dict[tuple[int, str], list[Bar]] = {}
    done: list[Bar] = []
    for bar in bars:
        key = (bar.top, bar.color)
        group = open_groups.get(key)
        if group and (bar.length >= slot or bar.start // slot != group[0].start // slot):
            done.append(_one(open_groups.pop(key)))
            group = None
        if bar.length >= slot:
            done.append(bar)
        elif group:
            group.append(bar)
        else:
            open_groups[key] = [bar]
    done += [_one(group) for group in open_groups.values()]
    yield from sorted(done, key=lambda bar: (bar.start, bar.top))


def _one(group: list[Bar]) -> Bar:
    if len(group) == 1:
        return group[0]
    start = group[0].start
    length = max(bar.start + bar.length for bar in group) - start
    filled = min(length, sum(bar.length for bar in group))
    heads = Counter(bar.head for bar in group).most_common(3)
    names = ", ".join(f"{count} × {head}" for head, count in heads)
    line = Counter(bar.line for bar in group).most_common(1)[0][0]
    text = f"{names}\nfills {share_text(filled, length)} of this stretch; zoom or profile a smaller shape to see each"
    what = "waits" if group[0].wait else "instructions"
    return group[0]._replace(length=length, head=f"{len(group)} {what}", text=text, line=line, number=-1, after=0, waited=0, why="")


class Table:
    """Strings by number, each kept once."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, entry: Any) -> int:
        """The number of an entry, new or known."""
        return self._numbers.setdefault(entry, len(self._numbers))

    def entries(self) -> list[Any]:
        """All entries by number."""
        return list(self._numbers)


def columns(lanes: Sequence[Lane], end: int, lines: Sequence[str]) -> dict[str, Any]:
    """What the page's script reads. A column in which all bars agree is that one value."""
    texts, whys, palette = Table(), Table(), Table()
    shown = []
    for lane in lanes:
        bars = lane.bars
        shown.append(
            {
                "height": lane.height,
                "gap": lane.gap,
                "labels": lane.labels,
                "overview": lane.overview,
                "bars": {
                    "start": [bar.start for bar in bars],
                    "length": _column([bar.length for bar in bars]),
                    "top": _column([bar.top for bar in bars]),
                    "height": _column([bar.height for bar in bars]),
                    "color": _column([palette.number(bar.color) for bar in bars]),
                    "text": _column([texts.number((bar.head, bar.text)) for bar in bars]),
                    "line": _column([bar.line for bar in bars]),
                    "number": _column([bar.number for bar in bars]),
                    "after": _column([bar.after for bar in bars]),
                    "waited": _column([bar.waited for bar in bars]),
                    "why": _column([whys.number(bar.why) for bar in bars]),
                    "wait": _column([int(bar.wait) for bar in bars]),
                    "light": _column([int(bar.light) for bar in bars]),
                },
            }
        )
    return {
        "end": max(1, end),
        "lanes": shown,
        "palette": palette.entries(),
        "heads": [head for head, _ in texts.entries()],
        "texts": [text for _, text in texts.entries()],
        "whys": whys.entries(),
        "lines": list(lines),
    }


def _column(values: list[int]) -> list[int] | int:
    return values[0] if values and len(set(values)) == 1 else values
