"""What the time model answers: when each instruction ran, and why engines waited.

Times are integer picoseconds since the start of the first instruction. Nothing but the total is worked out before it is
asked for: the schedule leaves a few arrays (`Trace`), from which `report.py` and `critical.py` make the records below.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from nki.ir.dependency import Dependency, DependencyKind
from nki.target import Target

if TYPE_CHECKING:
    from interpreter.timing.charges import Charge

EXECUTE = "execute"
DATA = "data"
BUFFER = "buffer"
ORDER = "order"
SEMAPHORE = "semaphore"
ENGINE = "engine"
ISSUE = "issue"
DMA_QUEUE = "dma_queue"
DMA_LATENCY = "dma_latency"
DMA_BANDWIDTH = "dma_bandwidth"
TABLE_LOAD = "table_load"
PORT_CONFLICT = "port_conflict"
BANK_CONFLICT = "bank_conflict"
WARM_UP = "warm_up"
BARRIER = "barrier"
LOOP = "loop"

REASONS: dict[str, str] = {
    EXECUTE: "the instruction itself (critical path only)",
    DATA: "a result of another instruction",
    BUFFER: "memory that is still being read or written",
    ORDER: "an order that the kernel asks for",
    SEMAPHORE: "a semaphore to be raised and seen",
    ENGINE: "its engine, or another queue of it",
    ISSUE: "a DMA to be issued",
    DMA_QUEUE: "the DMA before it in its queue, or the descriptor generator",
    DMA_LATENCY: "a DMA to start or to complete",
    DMA_BANDWIDTH: "a DMA to move its bytes",
    TABLE_LOAD: "activation tables",
    PORT_CONFLICT: "a port that another engine holds",
    BANK_CONFLICT: "a PSUM bank that another engine holds",
    WARM_UP: "the Tensor engine warming up (critical path only)",
    LOOP: "a loop on the device to take its turn",
    BARRIER: "the other core, to come to a barrier or an exchange",
}
"""The closed list of reasons for waiting, and of what the critical path consists of."""

BEFOREHAND = frozenset({LOOP})
"""Delays that an engine can have behind it while its instruction still waits for data."""


@dataclass(frozen=True)
class Event:
    """One stretch of work. `end_ps` frees the lane, at `visible_ps` others may use the result.

    lane: an engine, or a DMA queue (`dma0`, `dma1`...). Weights are loaded while the engine multiplies, and a compiler
    may issue DMAs of one engine from several queues: such stretches may overlap on their lane.
    """

    core: int
    index: int
    lane: str
    start_ps: int
    end_ps: int
    visible_ps: int
    kind: str


@dataclass(frozen=True)
class Wait:
    """A stretch in which an engine with work left stood still, and the instruction it waited for, if any."""

    core: int
    engine: str
    index: int
    """The instruction that could not start."""
    start_ps: int
    end_ps: int
    reason: str
    because_of: int | None


class Step(NamedTuple):
    """A stretch of the critical path. `number` counts instructions through all cores."""

    number: int
    reason: str
    ps: int


@dataclass(frozen=True)
class EngineUse:
    """One engine's share of the run, summed over cores: busy, waiting and idle time make up each core's latency.

    idle_ps: from its last instruction to the end of the run. utilisation: busy share of the latency.
    """

    busy_ps: int
    utilisation: float
    instructions: int
    waits: dict[str, int]
    idle_ps: int


@dataclass(frozen=True)
class DmaUse:
    """What the DMA engines did. busy_ps: of each of them, core by core. active_ps: how long at least one moved data."""

    transfers: int
    descriptors: int
    bytes: int
    busy_ps: tuple[int, ...]
    active_ps: int

    @property
    def bytes_per_ns(self) -> float:
        """Rate achieved while data moved."""
        return self.bytes * 1000 / self.active_ps if self.active_ps else 0.0


class Move(NamedTuple):
    """The part of a DMA after its issue: its queue, and the times between which things happened to it."""

    queue: int
    issued: int
    """Trigger out of the queue's hands."""
    ready: int
    """Latency over: data could move."""
    met: int
    """The other core has come, if it is an exchange."""
    start: int
    """The queue's turn has come."""
    done: int
    """The last byte has moved."""


@dataclass(eq=False)
class Trace:
    """The raw result for one core: one entry per instruction in each array."""

    core: int
    charges: list[Charge]
    start: array[int]
    end: array[int]
    visible: array[int]
    cause: list[Dependency | None]
    """The dependency that was satisfied last."""
    reordered: bool
    """Whether engines did what was ready first, whatever its place in the program."""
    moves: dict[int, Move] = field(default_factory=dict)
    delays: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    """(reason, ps) of what else kept an instruction from starting, in order of time."""
    cold: dict[int, int] = field(default_factory=dict)
    """Extra time of instructions that ran while the Tensor engine warmed up."""
    background: list[tuple[int, int, int, str]] = field(default_factory=list)
    """(instruction, start, end, kind) of steps that ran behind their engine's back."""

    @property
    def latency_ps(self) -> int:
        """When the last semaphore shows."""
        return max(self.visible, default=0)

    @cached_property
    def _ends(self) -> dict[int, list[tuple[int, int]]]:
        """Per lane, (end, instruction) in order of time."""
        lanes: dict[int, list[tuple[int, int]]] = {}
        for index, charge in enumerate(self.charges):
            lanes.setdefault(charge.lane, []).append((self.end[index], index))
        for ends in lanes.values():
            ends.sort()
        return lanes

    def before(self, index: int, until: int) -> int:
        """The instruction that its engine had finished last by the time `until`, or -1."""
        ends = self._ends[self.charges[index].lane]
        place = bisect_left(ends, (until, index))
        return ends[place - 1][1] if place else -1

    def satisfied(self, index: int, target: Target) -> int:
        """When what an instruction depends on was there: its engine's own order needs no semaphore."""
        dependency = self.cause[index]
        if dependency is None:
            return 0
        if self.in_engine(index, dependency):
            return self.end[dependency.on]
        return self.visible[dependency.on] + target.semaphore_wake_ps

    def in_engine(self, index: int, dependency: Dependency) -> bool:
        """Whether a dependency is a mere order of two instructions of one engine."""
        on = dependency.on
        alike = self.charges[on].lane == self.charges[index].lane and on not in self.moves
        return alike and dependency.kind is not DependencyKind.RAW


@dataclass(frozen=True)
class Timeline:
    """How long a program takes on `target`, under `schedule` ("program" or "compiler").

    launch_ps: what a host sees besides: start-up before the first instruction and tear-down after the last.
    again: times the same program on another machine and under a schedule.
    """

    target: Target
    schedule: str
    launch_ps: int
    traces: tuple[Trace, ...]
    again: Callable[[Target, str], Timeline] = field(repr=False, compare=False)

    @cached_property
    def latency_ps(self) -> int:
        """Start of the first instruction to the last semaphore, over all cores."""
        return max((trace.latency_ps for trace in self.traces), default=0)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Every stretch of work, core by core in program order."""
        from interpreter.timing.report import events

        return tuple(event for trace in self.traces for event in events(trace))

    @cached_property
    def waits(self) -> tuple[Wait, ...]:
        """Every stretch in which an engine with work left stood still, core by core and engine by engine."""
        from interpreter.timing.report import waits

        return tuple(wait for trace in self.traces for wait in waits(trace, self.target))

    @cached_property
    def engines(self) -> dict[str, EngineUse]:
        """Each engine's busy and waiting time; all five engines, in a fixed order."""
        from interpreter.timing.report import engine_uses

        return engine_uses(self)

    @cached_property
    def dma(self) -> DmaUse:
        """What the DMA engines did."""
        from interpreter.timing.report import dma_use

        return dma_use(self)

    @cached_property
    def critical_path(self) -> tuple[Step, ...]:
        """What the run's length consists of, from start to end; the parts add up to `latency_ps`."""
        from interpreter.timing.critical import critical_path

        first = 0
        paths: dict[int, tuple[Trace, int]] = {}
        for trace in self.traces:
            paths.setdefault(trace.latency_ps, (trace, first))
            first += len(trace.charges)
        if not paths:
            return ()
        slowest, number = paths[self.latency_ps]
        return critical_path(slowest, number, self.target)
