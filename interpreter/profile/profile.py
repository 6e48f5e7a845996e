"""`Profile`: how long a program takes and why. Made from a program and its timeline only; nothing is run.

The figures are attributes, `print` shows the short form, `to_html` the page, `to_perfetto` and `to_parquet` every
event for other tools, `to_json` the figures for programs. `reading.py` says what is read, `notes.py` what is concluded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Union

from interpreter.profile.measures import (
    PS_PER_US,
    CriticalStep,
    DmaSummary,
    EngineSummary,
    LineTime,
    critical_steps,
    dma_summary,
    engine_summaries,
    line_times,
)
from interpreter.profile.notes import notes
from interpreter.profile.reading import Reading
from interpreter.profile.remarks import Note
from interpreter.profile.roofline import Roofline, roofline
from interpreter.timing.timeline import Timeline
from interpreter.timing.what_if import KNOBS, changed
from nki.ir.program import Program

Path = Union[str, "os.PathLike[str]"]


class Profile:
    """Time of one program on one target, by engine, by source line and by cause."""

    def __init__(self, program: Program, timeline: Timeline) -> None:
        self.program = program
        self.timeline = timeline
        self.reading = Reading(program, timeline)

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return self.program.name

    @property
    def target(self) -> str:
        """Name of the generation: "trn1", "trn2" or "trn3"."""
        return self.program.target.name

    @property
    def latency_us(self) -> float:
        """From the first instruction to the last semaphore."""
        return self.timeline.latency_ps / PS_PER_US

    @property
    def launch_us(self) -> float:
        """The fixed cost that a benchmark on the host sees besides."""
        return self.timeline.launch_ps / PS_PER_US

    @property
    def cycles(self) -> Mapping[str, int]:
        """How many cycles of its own clock each engine is busy."""
        return {
            name: engine.cycles
            for name, engine in self.engines.items()
            if engine.cycles or engine.busy_us == 0
        }

    @cached_property
    def engines(self) -> Mapping[str, EngineSummary]:
        """Busy time, utilisation, instructions and waits by reason, per engine."""
        return engine_summaries(self.reading)

    @cached_property
    def dma(self) -> DmaSummary:
        """Bytes, transfers, descriptors and achieved rate of all data movement."""
        return dma_summary(self.reading)

    @cached_property
    def roofline(self) -> Roofline:
        """Operations, bytes, and the shares of the peaks of array and memory that they come to."""
        return roofline(self.timeline)

    def what_if(self, **factors: float) -> Profile:
        """The same program on a machine some of whose resources are that many times as fast, e.g. dma_bandwidth=2.

        The resources are those of `bounds`; `math.inf` takes no time. Raises ArgumentError for other names.
        """
        machine = changed(self.timeline.target, factors)
        return Profile(self.program, self.timeline.again(machine, self.timeline.schedule))

    @cached_property
    def bounds(self) -> Mapping[str, float]:
        """Latency in microseconds if one resource took no time, by its name: the most that improving it can gain."""
        return {name: self.what_if(**{name: math.inf}).latency_us for name in KNOBS}

    @cached_property
    def schedules(self) -> Mapping[str, float]:
        """Latency in microseconds under both schedules, the one that was used first."""
        used = self.timeline.schedule
        (other,) = {"program", "compiler"} - {used}
        ps = self.timeline.again(self.timeline.target, other).latency_ps
        return {used: self.latency_us, other: ps / PS_PER_US}

    @cached_property
    def critical_path(self) -> tuple[CriticalStep, ...]:
        """The chain of instructions and waits that decides the latency, in order of time."""
        return critical_steps(self.reading)

    @cached_property
    def lines(self) -> tuple[LineTime, ...]:
        """Time per source line, longest first."""
        return line_times(self.reading)

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """What limits the kernel, in plain words, largest first."""
        return notes(self.reading)

    def to_json(self) -> dict[str, Any]:
        """All figures as plain dictionaries, lists, numbers and strings."""
        from interpreter.profile.exports import as_json

        return as_json(self)

    def to_html(self, path: Path) -> None:
        """Write the report as one page that needs nothing else."""
        from interpreter.profile.html import page_text

        _write(path, page_text(self))

    def to_perfetto(self, path: Path) -> None:
        """Write a trace for ui.perfetto.dev or chrome://tracing: one track per engine and per DMA queue."""
        from interpreter.profile.exports import trace_text

        _write(path, trace_text(self))

    def to_parquet(self, path: Path) -> None:
        """Write one row per event; needs pyarrow (`pip install open-nki[profile]`)."""
        from interpreter.profile.exports import write_parquet

        write_parquet(self, path)

    def __str__(self) -> str:
        from interpreter.profile.summary import summary

        return summary(self)

    def __repr__(self) -> str:
        return f"<Profile of {self.kernel} on {self.target}: {self.latency_us:.2f} us>"

    def _repr_html_(self) -> str:
        from interpreter.profile.html import inline_text

        return inline_text(self)


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
