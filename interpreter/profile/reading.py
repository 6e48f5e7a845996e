"""What the report reads: a program and its timeline as flat records with one number per instruction.

The only module of this folder that knows how a `Timeline` is laid out. Nothing is executed or scheduled here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from interpreter.profile.units import DMA
from interpreter.timing.timeline import Timeline
from nki.ir.cost import Transfer
from nki.ir.instruction import Instruction
from nki.ir.program import Program
from nki.span import UNKNOWN, Span
from nki.target import Target


class Occupied(NamedTuple):
    """A stretch during which an instruction holds an engine (`lane` 0) or one DMA queue (`lane` its number)."""

    unit: str
    lane: int
    start: int
    end: int
    visible: int
    number: int
    kind: str


class Waited(NamedTuple):
    """A stretch during which an engine has nothing to run. `because` is the instruction it waits for, or -1."""

    unit: str
    start: int
    end: int
    reason: str
    because: int

    @property
    def length(self) -> int:
        """Duration in picoseconds."""
        return self.end - self.start


class Step(NamedTuple):
    """One link of the critical path."""

    number: int
    reason: str
    ps: int


class Reading:
    """A program and its timeline. Instructions are numbered through all cores."""

    def __init__(self, program: Program, timeline: Timeline) -> None:
        self.program = program
        self.timeline = timeline
        self.target: Target = program.target
        self.latency_ps: int = timeline.latency_ps
        self.launch_ps: int = timeline.launch_ps
        self.instructions: list[Instruction] = list(program.instructions())
        self._first = [0]
        for core in program.cores:
            self._first.append(self._first[-1] + len(core))
        self._transfers: dict[object, Transfer | None] = {}

    @cached_property
    def occupied(self) -> list[Occupied]:
        """Every occupancy, by start."""
        first = self._first
        found = [
            Occupied(*_lane(e.lane), e.start_ps, e.end_ps, e.visible_ps, first[e.core] + e.index, e.kind)
            for e in self.timeline.events
        ]
        return sorted(found, key=lambda o: (o.start, o.unit, o.lane, o.number))

    @cached_property
    def waited(self) -> list[Waited]:
        """Every wait, by start."""
        first = self._first
        found = [
            Waited(w.engine, w.start_ps, w.end_ps, w.reason, -1 if w.because_of is None else first[w.core] + w.because_of)
            for w in self.timeline.waits
        ]
        return sorted(found, key=lambda w: (w.start, w.unit))

    @cached_property
    def critical(self) -> list[Step]:
        """The critical path in order of time."""
        return [Step(index, reason, ps) for index, reason, ps in self.timeline.critical_path]

    @cached_property
    def held(self) -> dict[tuple[int, str], int]:
        """How long each instruction holds each engine. Parts of one DMA on several queues count once."""
        spans: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        for event in self.occupied:
            spans[event.number, event.unit].append((event.start, event.end))
        return {key: _union(found) for key, found in spans.items()}

    @cached_property
    def moves(self) -> frozenset[int]:
        """Numbers of the instructions that move data with the DMA."""
        return frozenset(event.number for event in self.occupied if event.unit == DMA)

    def span(self, number: int) -> Span:
        """Where an instruction comes from."""
        return self.instructions[number].span if 0 <= number < len(self.instructions) else UNKNOWN

    def mnemonic(self, number: int) -> str:
        """The name of an instruction; empty if there is none of this number."""
        return self.instructions[number].mnemonic if 0 <= number < len(self.instructions) else ""

    def transfer(self, number: int) -> Transfer | None:
        """The data movement of an instruction, if it is one."""
        instruction = self.instructions[number]
        key = instruction.key()
        if key not in self._transfers:
            phases = instruction.cost(self.target)
            self._transfers[key] = next((phase.transfer for phase in phases if phase.transfer), None)
        return self._transfers[key]


def _lane(lane: str) -> tuple[str, int]:
    if not lane.startswith(DMA):
        return lane, 0
    digits = "".join(c for c in lane if c.isdigit())
    return DMA, int(digits or 0)


def _union(spans: Iterable[tuple[int, int]]) -> int:
    """Length of the union of spans."""
    total = reached = 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
