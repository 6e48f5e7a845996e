"""A profile for other tools: JSON figures, a Chrome/Perfetto trace, a Parquet table of events."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from interpreter.profile.describe import Describer
from interpreter.profile.units import DMA, in_order, reason_text, title
from nki import errors

if TYPE_CHECKING:
    from interpreter.profile.profile import Profile

PS_PER_TRACE_US = 1_000_000  # the trace format counts microseconds


def as_json(profile: Profile) -> dict[str, Any]:
    """The figures of a profile; durations in microseconds."""
    return {
        "kernel": profile.kernel,
        "target": profile.target,
        "schedule": profile.timeline.schedule,
        "schedules_us": dict(profile.schedules),
        "bounds_us": dict(profile.bounds),
        "roofline": {**asdict(profile.roofline), "bound": profile.roofline.bound},
        "latency_us": profile.latency_us,
        "launch_us": profile.launch_us,
        "instructions": len(profile.reading.instructions),
        "engines": {
            name: {**asdict(engine), "waits": dict(engine.waits)} for name, engine in profile.engines.items()
        },
        "dma": {**asdict(profile.dma), "busy_us": list(profile.dma.busy_us)},
        "critical_path": [asdict(step) for step in profile.critical_path],
        "lines": [asdict(line) for line in profile.lines],
        "notes": [
            {"text": str(note), "code": note.code, "share": note.share, "file": note.file, "line": note.line}
            for note in profile.notes
        ],
    }


# --- Perfetto ---------------------------------------------------------------------------------------------------


def trace_text(profile: Profile) -> str:
    """The trace as JSON text: an event a line, so that a diff of two traces can be read."""
    head = {
        "displayTimeUnit": "ns",
        "otherData": {"kernel": profile.kernel, "target": profile.target, "latency_us": profile.latency_us},
    }
    events = [json.dumps(event, ensure_ascii=False) for event in trace_events(profile)]
    body = ",\n".join(events)
    return json.dumps(head)[:-1] + ', "traceEvents": [\n' + body + "\n]}\n"


def trace_events(profile: Profile) -> list[dict[str, Any]]:
    """Names of the tracks, then every occupancy and every wait as a complete event."""
    reading = profile.reading
    describer = Describer(reading)
    found = {(o.unit, o.lane, o.row) for o in reading.occupied} | {(w.unit, 0, 0) for w in reading.waited}
    order = in_order(unit for unit, _, _ in found)
    tracks = sorted(found, key=lambda track: (order.index(track[0]), *track[1:]))
    ids = {track: number for number, track in enumerate(tracks, 1)}
    events: list[dict[str, Any]] = [_meta("process_name", 0, name=f"{profile.kernel} on {profile.target}")]
    for position, number in ids.items():
        events.append(_meta("thread_name", number, name=_track_name(*position)))
        events.append(_meta("thread_sort_index", number, sort_index=number))
    for held in reading.occupied:
        args = {**describer.arguments(held.number), "phase": held.kind, "visible_ns": held.visible / 1000}
        name = describer.head(held.number, held.kind)
        events.append(
            _complete(name, held.unit, ids[held.unit, held.lane, held.row], held.start, held.end, args)
        )
    for wait in reading.waited:
        args = {"reason": wait.reason, **describer.cause(wait.because)}
        track = ids[wait.unit, 0, 0]
        events.append(
            _complete(f"wait: {reason_text(wait.reason)}", "wait", track, wait.start, wait.end, args)
        )
    return events


@cache
def _track_name(unit: str, lane: int, row: int) -> str:
    name = f"{title(unit)} {lane}" if unit == DMA else title(unit)
    return f"{name} ({row + 1})" if row else name


def _meta(kind: str, track: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": track, "name": kind, "args": args}


def _complete(
    name: str, category: str, track: int, start: int, end: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": 1,
        "tid": track,
        "name": name,
        "cat": category,
        "ts": start / PS_PER_TRACE_US,
        "dur": (end - start) / PS_PER_TRACE_US,
        "args": args,
    }


# --- Parquet ----------------------------------------------------------------------------------------------------


def write_parquet(profile: Profile, path: str | os.PathLike[str]) -> None:
    """One row per occupancy and per wait, with the figures of the profile as the table's metadata."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise errors.MissingExtraError(
            "Profile.to_parquet needs pyarrow, which is not installed",
            found="no module named pyarrow",
            allowed="pyarrow 17 or later",
            remedy="pip install open-nki[profile]",
        ) from None
    table = pa.table(event_columns(profile))
    metadata = {"kernel": profile.kernel, "target": profile.target, "latency_us": repr(profile.latency_us)}
    pq.write_table(table.replace_schema_metadata(metadata), os.fspath(path))


def event_columns(profile: Profile) -> dict[str, list[Any]]:
    """The events as columns. A wait has the phase "wait", a reason, and the instruction it is for (-1: none)."""
    reading = profile.reading
    names = (
        "engine",
        "lane",
        "start_ps",
        "end_ps",
        "visible_ps",
        "phase",
        "reason",
        "instruction",
        "mnemonic",
        "because_of",
    )
    rows: list[tuple[Any, ...]] = [
        (o.unit, o.lane, o.start, o.end, o.visible, o.kind, "", o.number, reading.mnemonic(o.number), -1)
        for o in reading.occupied
    ]
    rows += [
        (w.unit, 0, w.start, w.end, w.end, "wait", w.reason, w.number, reading.mnemonic(w.number), w.because)
        for w in reading.waited
    ]
    rows.sort(key=lambda row: (row[2], row[0], row[1]))
    columns: dict[str, list[Any]] = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    spans = [reading.span(number) for number in columns["instruction"]]
    columns["file"] = [span.file for span in spans]
    columns["line"] = [span.line for span in spans]
    columns["function"] = [span.function for span in spans]
    return columns
