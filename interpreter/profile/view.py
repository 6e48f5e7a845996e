"""The view model of the page: every text and number that the templates show, worked out beforehand.

Templates only place what stands here. `timeline` is what the script draws (see `lanes.py`, `bars.py`). A `line` is an
index into the lines of the profile, -1 for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interpreter.profile.bars import MOST_BARS, all_lanes
from interpreter.profile.describe import Describer
from interpreter.profile.lanes import Lane, columns, thinned
from interpreter.profile.measures import PS_PER_US
from interpreter.profile.overview import Overview, line_numbers, overview
from interpreter.profile.source_view import SourceFile, source_files
from interpreter.profile.units import GROUPS, reason_text, share_text, time_text
from interpreter.timing.what_if import KNOBS

if TYPE_CHECKING:
    from interpreter.profile.profile import Profile

MOST_STEPS = 40


@dataclass(frozen=True)
class StepRow:
    """Steps of the critical path that are alike, together."""

    what: str
    place: str
    time: str
    share: str
    line: int


@dataclass(frozen=True)
class BoundRow:
    """What a kernel would take if one resource took no time."""

    name: str
    what: str
    time: str
    gain: str


@dataclass(frozen=True)
class GutterRow:
    """The name beside a lane."""

    name: str
    detail: str
    swatch: str
    size: str
    height: int
    gap: int


@dataclass(frozen=True)
class LegendEntry:
    """A colour and what it stands for."""

    swatch: str
    label: str


@dataclass(frozen=True)
class PageView:
    """The page."""

    head: Overview
    title: str
    detail: str
    lanes: tuple[GutterRow, ...]
    legend: tuple[LegendEntry, ...]
    sources: tuple[SourceFile, ...]
    critical: tuple[StepRow, ...]
    bounds: tuple[BoundRow, ...]
    footer: str
    timeline: Mapping[str, Any]


def page_view(profile: Profile, most_bars: int = MOST_BARS) -> PageView:
    """Everything the page shows."""
    describer = Describer(profile.reading)
    number_of = line_numbers(profile)
    whole = all_lanes(profile.reading, describer, number_of)
    lanes = thinned(whole, profile.reading.latency_ps, most_bars)
    names = [describer.places.place(line.file, line.line) or "(no source)" for line in profile.lines]
    return PageView(
        head=overview(profile),
        title=f"{profile.kernel} on {profile.target}",
        detail=_detail(whole, lanes),
        lanes=tuple(_gutter(lane) for lane in lanes),
        legend=_legend(lanes),
        sources=source_files(profile, describer.places),
        critical=_critical(profile, describer, number_of),
        bounds=_bounds(profile),
        footer="Times are predicted from published figures of the hardware; nothing was measured on a device.",
        timeline=columns(lanes, profile.reading.latency_ps, names, describer.text),
    )


def _bounds(profile: Profile) -> tuple[BoundRow, ...]:
    """The resources, those that hold the kernel up most first."""
    latency = profile.latency_us or 1.0
    return tuple(
        BoundRow(name, KNOBS[name].doc, time_text(us * PS_PER_US), share_text(latency - us, latency))
        for name, us in sorted(profile.bounds.items(), key=lambda item: item[1])
    )


def _detail(whole: tuple[Lane, ...], shown: tuple[Lane, ...]) -> str:
    before, after = (sum(len(lane.bars) for lane in lanes) for lanes in (whole, shown))
    return f"{before:,} bars" if before == after else f"{before:,} bars, the thinnest merged to {after:,}"


def _gutter(lane: Lane) -> GutterRow:
    return GutterRow(
        lane.name, lane.detail, lane.swatch, "" if lane.labels else "small", lane.height, lane.gap
    )


def _legend(lanes: tuple[Lane, ...]) -> tuple[LegendEntry, ...]:
    used = {bar.color for lane in lanes for bar in lane.bars}
    return tuple(
        LegendEntry(f"--wait-{key}", label) for key, label in GROUPS.items() if f"--wait-{key}" in used
    )


def _critical(
    profile: Profile, describer: Describer, number_of: Mapping[tuple[str, int], int]
) -> tuple[StepRow, ...]:
    total: dict[tuple[str, str, int], float] = {}
    places: dict[int, str] = {}
    for step in profile.critical_path:
        line = number_of.get((step.file, step.line), -1)
        places.setdefault(line, describer.places.place(step.file, step.line))
        key = (step.mnemonic, step.reason, line)
        total[key] = total.get(key, 0.0) + step.us
    rows = sorted(total.items(), key=lambda item: (-item[1], item[0]))[:MOST_STEPS]
    return tuple(
        StepRow(
            what=f"{mnemonic}: {reason_text(reason)}",
            place=places[line],
            time=time_text(us * PS_PER_US),
            share=share_text(us, profile.latency_us),
            line=line,
        )
        for (mnemonic, reason, line), us in rows
    )
