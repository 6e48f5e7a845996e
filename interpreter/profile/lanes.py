"""The bars of the timeline: one lane per engine, per DMA queue and per on-chip memory, few enough to draw.

A bar thinner than a slot of the lane's resolution is merged with its neighbours in that slot, so the number of bars
is bounded by the resolution and not by the program. The page draws columns: one list per property.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from interpreter.profile.units import share_text

FINEST: Final = 1 << 16
"""Slots a lane is divided into at first."""

FULL: Final = 1000
"""Height of a lane; the tops and heights of its bars are parts of it."""


class Bar(NamedTuple):
    """One rectangle. `head`, `text` and `why` are what the tooltip says; an instruction's text is made later.

    line: index into the lines of the profile.  number: the instruction.  after: from its end to its result being seen.
    """

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
    """A row of the timeline. `labels`: write names into wide bars; `overview`: show it in the overview strip."""

    name: str
    detail: str
    swatch: str
    height: int
    gap: int
    bars: tuple[Bar, ...]
    labels: bool = True
    overview: bool = True


def thinned(lanes: Sequence[Lane], end: int, most: int) -> tuple[Lane, ...]:
    """The lanes with their thinnest bars merged until at most about `most` bars are left."""
    if sum(len(lane.bars) for lane in lanes) <= most:
        return tuple(lanes)
    slots = FINEST
    while slots > 1 and sum(_left(lane.bars, max(1, end // slots)) for lane in lanes) > most:
        slots //= 2
    return tuple(replace(lane, bars=tuple(merged(lane.bars, max(1, end // slots)))) for lane in lanes)


def _left(bars: Iterable[Bar], slot: int) -> int:
    """About how many bars `merged` leaves."""
    short = {(bar.start // slot, bar.top, bar.color) for bar in bars if bar.length < slot}
    return len(short) + sum(bar.length >= slot for bar in bars)


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
    return group[0]._replace(
        length=length, head=f"{len(group)} {what}", text=text, line=line, number=-1, after=0, waited=0, why=""
    )


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


def columns(
    lanes: Sequence[Lane], end: int, lines: Sequence[str], text_of: Callable[[int], str]
) -> dict[str, Any]:
    """What the page's script reads. A column in which all bars agree is that one value."""
    texts, whys, palette = Table(), Table(), Table()
    shown = []
    for lane in lanes:
        found: dict[str, list[int]] = {
            "length": [bar.length for bar in lane.bars],
            "top": [bar.top for bar in lane.bars],
            "height": [bar.height for bar in lane.bars],
            "color": [palette.number(bar.color) for bar in lane.bars],
            "text": [
                texts.number((b.head, b.text or (text_of(b.number) if b.number >= 0 else "")))
                for b in lane.bars
            ],
            "line": [bar.line for bar in lane.bars],
            "number": [bar.number for bar in lane.bars],
            "after": [bar.after for bar in lane.bars],
            "waited": [bar.waited for bar in lane.bars],
            "why": [whys.number(bar.why) for bar in lane.bars],
            "wait": [int(bar.wait) for bar in lane.bars],
            "light": [int(bar.light) for bar in lane.bars],
        }
        bars = {
            "start": [bar.start for bar in lane.bars],
            **{name: _column(values) for name, values in found.items()},
        }
        flags = {"labels": lane.labels, "overview": lane.overview}
        shown.append({"height": lane.height, "gap": lane.gap, **flags, "bars": bars})
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
