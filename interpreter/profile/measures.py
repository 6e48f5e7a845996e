"""The figures of a profile as plain records: engines, DMA, source lines, steps of the critical path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from interpreter.profile.reading import Reading
from interpreter.profile.sources import source_line
from interpreter.profile.units import DMA, in_order
from interpreter.timing.timeline import EngineUse
from nki.enums import engine as Engine

PS_PER_US = 1_000_000


@dataclass(frozen=True)
class EngineSummary:
    """One engine. `busy_us` is the time it is occupied, `utilisation` its share of the latency; of the DMA the mean of
    its engines.

    waits: microseconds by reason, longest first. cycles: `busy_us` in the engine's own clock; 0 for the DMA.
    """

    name: str
    busy_us: float
    utilisation: float
    instructions: int
    waits: Mapping[str, float]
    cycles: int

    @property
    def main_wait(self) -> str:
        """The reason it waits for longest; empty if it never waits."""
        return next(iter(self.waits), "")


@dataclass(frozen=True)
class DmaSummary:
    """All data movement. `bytes_per_descriptor` is the mean size of a contiguous piece.

    gb_per_s: bytes over the whole latency. active_us: how long at least one DMA engine moves data. busy_us: time per
    DMA engine, idle ones included.
    """

    bytes: int
    transfers: int
    descriptors: int
    bytes_per_descriptor: float
    gb_per_s: float
    active_us: float
    busy_us: tuple[float, ...]


@dataclass(frozen=True)
class LineTime:
    """The time of one source line: how long its instructions hold each engine, summed over all of them.

    share: of the time all engines are held. critical_us: its part of the critical path.
    """

    file: str
    line: int
    function: str
    code: str
    engines_us: Mapping[str, float]
    total_us: float
    share: float
    critical_us: float
    instructions: int


@dataclass(frozen=True)
class CriticalStep:
    """A link of the chain of instructions and waits that decides the latency, in order of time."""

    instruction: int
    mnemonic: str
    reason: str
    us: float
    file: str
    line: int


def line_times(reading: Reading) -> tuple[LineTime, ...]:
    """Time per source line, longest first."""
    engines: defaultdict[tuple[str, int], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    members: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    functions: dict[tuple[str, int], str] = {}
    for (number, unit), ps in reading.held.items():
        span = reading.span(number)
        place = (span.file, span.line)
        engines[place][unit] += ps
        members[place].add(number)
        functions.setdefault(place, span.function)
    critical: defaultdict[tuple[str, int], int] = defaultdict(int)
    for step in reading.critical:
        span = reading.span(step.number)
        critical[span.file, span.line] += step.ps
    whole = sum(sum(times.values()) for times in engines.values()) or 1
    lines = [
        LineTime(
            file=place[0],
            line=place[1],
            function=functions[place],
            code=source_line(*place),
            engines_us={unit: times[unit] / PS_PER_US for unit in in_order(times)},
            total_us=sum(times.values()) / PS_PER_US,
            share=sum(times.values()) / whole,
            critical_us=critical[place] / PS_PER_US,
            instructions=len(members[place]),
        )
        for place, times in engines.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-line.total_us, line.file, line.line)))


def engine_summaries(reading: Reading) -> dict[str, EngineSummary]:
    """Every engine that the timeline knows, and the DMA, in the order in which they are shown."""
    uses = reading.timeline.engines
    cores = len(reading.program.cores)
    found = {unit: _engine(reading, unit, uses[unit], cores) for unit in in_order(uses)}
    dma = reading.timeline.dma
    if dma.transfers:
        busy = sum(dma.busy_ps) / max(1, len(dma.busy_ps))
        share = busy / reading.latency_ps if reading.latency_ps else 0.0
        found[DMA] = EngineSummary(DMA, busy / PS_PER_US, share, dma.transfers, {}, 0)
    return found


def _engine(reading: Reading, unit: str, use: EngineUse, cores: int) -> EngineSummary:
    """One engine; several cores are averaged."""
    waits = sorted(use.waits.items(), key=lambda item: (-item[1], item[0]))
    return EngineSummary(
        name=unit,
        busy_us=use.busy_ps / cores / PS_PER_US,
        utilisation=use.utilisation,
        instructions=use.instructions,
        waits={reason: ps / cores / PS_PER_US for reason, ps in waits if ps},
        cycles=round(use.busy_ps / cores * reading.target.clock_mhz(Engine[unit]) / PS_PER_US),
    )


def dma_summary(reading: Reading) -> DmaSummary:
    """What the timeline says about data movement."""
    use = reading.timeline.dma
    return DmaSummary(
        bytes=use.bytes,
        transfers=use.transfers,
        descriptors=use.descriptors,
        bytes_per_descriptor=use.bytes / use.descriptors if use.descriptors else 0.0,
        gb_per_s=use.bytes * 1000 / reading.latency_ps if reading.latency_ps else 0.0,
        active_us=use.active_ps / PS_PER_US,
        busy_us=tuple(ps / PS_PER_US for ps in use.busy_ps),
    )


def critical_steps(reading: Reading) -> tuple[CriticalStep, ...]:
    """The critical path with the places its steps come from."""
    steps = []
    for step in reading.critical:
        span = reading.span(step.number)
        steps.append(
            CriticalStep(
                instruction=step.number,
                mnemonic=reading.mnemonic(step.number),
                reason=step.reason,
                us=step.ps / PS_PER_US,
                file=span.file,
                line=span.line,
            )
        )
    return tuple(steps)
