"""The short form of a profile for the terminal: never wider than 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from interpreter.profile.measures import PS_PER_US
from interpreter.profile.overview import schedule_text
from interpreter.profile.remarks import Places
from interpreter.profile.units import bytes_text, reason_text, share_text, time_text, title

if TYPE_CHECKING:
    from interpreter.profile.profile import Profile

WIDTH = 100
_BAR = 20
_MOST_LINES = 6
_MOST_NOTES = 3
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def summary(profile: Profile) -> str:
    """Target and latency, engines with their main wait, the most expensive lines, the first notes."""
    parts = [
        _head(profile),
        schedule_text(profile),
        "",
        *_engines(profile),
        "",
        *_lines(profile),
        "",
        *_notes(profile),
    ]
    return "\n".join(line.rstrip() for line in parts)


def _head(profile: Profile) -> str:
    latency = time_text(profile.latency_us * PS_PER_US)
    launch = time_text(profile.launch_us * PS_PER_US)
    head = f"{latency} (and {launch} launch), {len(profile.reading.instructions)} instructions"
    room = WIDTH - len(head) - len(profile.target) - 7
    return f"{_cut(profile.kernel, room)} on {profile.target}: {head}"


def bar(share: float, width: int = _BAR) -> str:
    """A bar of block characters, `width` columns for a share of 1."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    text = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return text.ljust(width)


def _engines(profile: Profile) -> list[str]:
    rows = [f"{'engine':<8}{'use':>6}  {'':<{_BAR}}{'busy':>10}{'instr.':>8}  waits mostly for"]
    for unit, engine in profile.engines.items():
        if not engine.instructions and not engine.busy_us:
            continue
        wait = ""
        if engine.main_wait:
            waited = engine.waits[engine.main_wait] / profile.latency_us if profile.latency_us else 0
            wait = f"{reason_text(engine.main_wait)} ({share_text(waited)})"
        busy = time_text(engine.busy_us * PS_PER_US)
        row = f"{title(unit):<8}{share_text(engine.utilisation):>6}  {bar(engine.utilisation)}{busy:>10}"
        rows.append(f"{row}{engine.instructions:>8}  {_cut(wait, WIDTH - 56)}")
    dma = profile.dma
    if dma.transfers:
        rows.append(
            f"moved {bytes_text(dma.bytes)} in {dma.transfers} transfers, {bytes_text(dma.bytes_per_descriptor)} a "
            f"descriptor, {dma.gb_per_s:.1f} GB/s on average"
        )
    return rows


def _lines(profile: Profile) -> list[str]:
    places = Places(profile.reading)
    shown = profile.lines[:_MOST_LINES]
    wide = min(28, max([len(places.place(line.file, line.line)) for line in shown], default=0))
    rows = [f"{'source line':<{max(wide, 11)}}{'time':>10}{'share':>7}  code"]
    for line in shown:
        place = _cut_left(places.place(line.file, line.line) or "(no source)", wide)
        row = (
            f"{place:<{max(wide, 11)}}{time_text(line.total_us * PS_PER_US):>10}{share_text(line.share):>7}  "
        )
        rows.append(row + _cut(line.code, WIDTH - len(row)))
    hidden = len(profile.lines) - len(shown)
    if hidden > 0:
        rest = sum(line.share for line in profile.lines[_MOST_LINES:])
        rows.append(f"... and {hidden} more ({share_text(rest)})")
    return rows


def _notes(profile: Profile) -> list[str]:
    rows = []
    for note in profile.notes[:_MOST_NOTES]:
        rows += textwrap.wrap(note, WIDTH, initial_indent="- ", subsequent_indent="  ")
    hidden = len(profile.notes) - _MOST_NOTES
    return rows + ([f"... and {hidden} more in .notes"] if hidden > 0 else [])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _cut_left(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]
