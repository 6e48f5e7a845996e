"""The report page: its view model as text, and what must hold of the file whatever is in it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields
from pathlib import Path

import jinja2
import pytest

from interpreter.profile import Profile, html
from interpreter.profile.bars import all_lanes
from interpreter.profile.describe import Describer
from interpreter.profile.html import INLINE_COLOURS, environment, page_text
from interpreter.profile.lanes import Bar, Lane, merged, thinned
from interpreter.profile.reading import Occupied, in_rows
from interpreter.profile.view import PageView, page_view
from interpreter.timing import timeline as t
from nki.span import Frame, Span
from tests.conftest import Golden
from tests.interpreter.profile_samples import EVENTS, PRODUCT, WAITS, handmade, sample_profile, sample_program

FOLDER = Path(html.__file__).parent


def text_of(view: PageView) -> str:
    """A view model with one record a line."""
    lines = []
    for field in fields(view.head):
        lines += _entry(field.name, getattr(view.head, field.name))
    for field in fields(view):
        if field.name not in ("head", "timeline"):
            lines += _entry(field.name, getattr(view, field.name))
    return "\n".join(lines)


def _entry(name: str, value: object) -> list[str]:
    if not isinstance(value, tuple):
        return [f"{name}: {value}"]
    return [f"{name}:", *(f"  {_record(entry)}" for entry in value)]


def _told(record: dict) -> dict:
    """What of a record is not just left out."""
    return {key: value for key, value in record.items() if value is not False and value not in ("", (), -1)}


def _record(entry: object) -> str:
    if isinstance(entry, str):
        return entry
    shown = _told(asdict(entry))
    rows = shown.pop("rows", ())
    head = json.dumps(shown, ensure_ascii=False)
    inner = [json.dumps(_told(row), ensure_ascii=False) for row in rows]
    return "\n    ".join([head, *inner])


def test_view(golden: Golden) -> None:
    golden(text_of(page_view(sample_profile())))


def test_bars(golden: Golden) -> None:
    profile = sample_profile()
    describer = Describer(profile.reading)
    lines = []
    for lane in all_lanes(profile.reading, describer, {}):
        lines.append(f"{lane.name} {lane.detail} ({lane.height} px)")
        for bar in lane.bars:
            where = f"{bar.start / 1000:g} + {bar.length / 1000:g} ns, {bar.top}/{bar.height} {bar.color}"
            why = f"; waited {bar.waited / 1000:g} ns for {bar.why}" if bar.waited else ""
            lines.append(f"  {where}: {bar.head}{why}")
    golden("\n".join(lines))


def test_page_needs_nothing_else() -> None:
    page = page_text(sample_profile())
    assert not re.search(r"<[a-z]+[^>]*\s(src|href)\s*=|<link|@import|url\(|https?://", page)
    assert "{{" not in page and "{%" not in page


def test_page_escapes_what_a_program_says() -> None:
    program = sample_program()
    name, program.name = program.name, "</script><script>alert(1)</script>"
    instruction = program.cores[0][PRODUCT]
    span = instruction.span
    instruction.span = Span((Frame("<img src=x onerror=alert(2)>.py", 7, "f"),))
    try:
        page = page_text(Profile(program, handmade(program, EVENTS, WAITS)))
    finally:
        program.name, instruction.span = name, span
    assert "<script>alert" not in page and "<img" not in page
    assert page.count("</script>") == 2


def test_templates_are_strict_and_do_not_compute() -> None:
    assert environment().undefined is jinja2.StrictUndefined and environment().autoescape
    for template in FOLDER.glob("*.j2"):
        for code in re.findall(r"{{(.*?)}}|{%(.*?)%}", template.read_text(encoding="utf-8")):
            assert not re.search(r"[-+*/]\s*\d|\w\s+[-+*/]\s+\w", "".join(code)), (template.name, code)


def test_page_has_a_colour_for_everything() -> None:
    css = (FOLDER / "page.css").read_text(encoding="utf-8")
    light, dark = css.split("@media (prefers-color-scheme: dark)")
    used = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", str(page_view(sample_profile())))) | set(INLINE_COLOURS)
    for name in used:
        assert f"{name}: #" in light and f"{name}: #" in dark, name


def test_timeline_data_is_complete() -> None:
    profile = sample_profile()
    data = page_view(profile).timeline
    assert json.loads(json.dumps(data)) == data
    for lane in data["lanes"]:
        count = len(lane["bars"]["start"])
        for column in lane["bars"].values():
            assert isinstance(column, int) or len(column) == count
    tensor = data["lanes"][0]["bars"]
    heads = [data["heads"][number] for number in tensor["text"]]
    assert "nc_matmul · load stationary" in heads and "waits for DMA bandwidth" in heads


def test_thin_bars_are_merged() -> None:
    bars = tuple(
        Bar(start, 5, 0, 1000, "--tensor", "a" if start % 20 else "b", number=start)
        for start in range(0, 1000, 10)
    )
    lane = Lane("x", "", "", 20, 0, (*bars, Bar(1000, 500, 0, 1000, "--tensor", "long")))
    found = list(merged(lane.bars, 100))
    assert len(found) == 11
    assert (found[0].head, found[0].start, found[0].length) == ("10 instructions", 0, 95)
    assert "5 × b, 5 × a" in found[0].text and "fills 53%" in found[0].text
    assert found[-1].head == "long"
    assert len(thinned([lane], 1500, 20)[0].bars) <= 20
    assert thinned([lane], 1500, 200) == (lane,)


def test_rows_part_what_overlaps() -> None:
    lane = [
        Occupied("tensor", 0, 0, start, start + 10, start + 10, i, "main")
        for i, start in enumerate((0, 10, 20))
    ]
    assert in_rows(lane) == lane
    behind = Occupied("tensor", 0, 0, 8, 12, 12, 3, "load")
    rows = {event.number: event.row for event in in_rows([*lane, behind])}
    assert rows == {0: 0, 1: 0, 2: 0, 3: 1}


@pytest.mark.slow
def test_a_page_of_a_hundred_thousand_events_is_small() -> None:
    events = [
        (PRODUCT, "tensor", 90 * i, 90 * i + 60, 90 * i + 70, "multiply_moving") for i in range(100_000)
    ]
    waits = [("tensor", PRODUCT, 90 * i + 60, 90 * i + 90, t.DATA, PRODUCT) for i in range(100_000)]
    program = sample_program()
    page = page_text(Profile(program, handmade(program, events, waits, latency=9_000_000_000)))
    assert len(page) < 4_000_000


def test_inline_form(golden: Golden) -> None:
    golden(sample_profile()._repr_html_(), suffix=".html")
