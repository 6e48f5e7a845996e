"""What the report reads: a program and its timeline as flat records with one number per instruction.

The only module of this folder that knows how a `Timeline` is laid out. Nothing is executed or scheduled here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from functools import cached_property
from typing import NamedTuple

from interpreter.profile.units import DMA, DMA_REASONS
from interpreter.timing.timeline import Timeline
from nki.ir.cost import Transfer
from nki.ir.instruction import Instruction
from nki.ir.program import Program
from nki.span import UNKNOWN, Span
from nki.target import Target

MOST_ROWS = 3
"""Rows a lane is split into where its stretches overlap."""


class Occupied(NamedTuple):
    """A stretch during which an instruction holds an engine (`lane` 0) or one DMA queue (`lane` its number).

    `row` tells apart stretches of one lane that overlap, e.g. weights being loaded behind a product.
    """

    unit: str
    lane: int
    row: int
    start: int
    end: int
    visible: int
    number: int
    kind: str


class Waited(NamedTuple):
    """A stretch during which an engine stands still before instruction `number`.

    `because` is the instruction it waits for, -1 if there is none.
    """

    unit: str
    start: int
    end: int
    reason: str
    number: int
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
        lanes: defaultdict[tuple[str, int], list[Occupied]] = defaultdict(list)
        for e in self.timeline.events:
            unit, lane = _lane(e.lane)
            number = first[e.core] + e.index
            lanes[unit, lane].append(
                Occupied(unit, lane, 0, e.start_ps, e.end_ps, e.visible_ps, number, e.kind)
            )
        return sorted(
            (event for lane in lanes.values() for event in in_rows(lane)),
            key=lambda o: (o.start, o.unit, o.lane, o.row, o.number),
        )

    @cached_property
    def waited(self) -> list[Waited]:
        """Every wait, by start."""
        first = self._first
        found = []
        for w in self.timeline.waits:
            because = -1 if w.because_of is None else first[w.core] + w.because_of
            number = first[w.core] + w.index
            found.append(Waited(w.engine, w.start_ps, w.end_ps, w.reason, number, because))
        return sorted(found, key=lambda w: (w.start, w.unit))

    @cached_property
    def critical(self) -> list[Step]:
        """The critical path in order of time."""
        return [Step(*step) for step in self.timeline.critical_path]

    @cached_property
    def critical_ps(self) -> Counter[str]:
        """How much of the critical path each engine and each reason makes up; "dma" is all that a DMA takes."""
        total: Counter[str] = Counter()
        for step in self.critical:
            unit = DMA if step.reason in DMA_REASONS else self.unit_of(step.number)
            total[unit] += step.ps
            total[step.reason] += step.ps
        return total

    @cached_property
    def held(self) -> dict[tuple[int, str], int]:
        """How long each instruction holds each engine. Parts of one DMA on several queues count once."""
        spans: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        for event in self.occupied:
            spans[event.number, event.unit].append((event.start, event.end))
        return {
            key: found[0][1] - found[0][0] if len(found) == 1 else _union(found)
            for key, found in spans.items()
        }

    @cached_property
    def moves(self) -> frozenset[int]:
        """Numbers of the instructions that move data with the DMA."""
        return frozenset(event.number for event in self.occupied if event.unit == DMA)

    @cached_property
    def busy_ps(self) -> dict[str, int]:
        """How long each engine is occupied; for the DMA, how long at least one of its engines is."""
        units = {event.unit for event in self.occupied}
        return {unit: self.union(unit) for unit in units}

    @cached_property
    def issue_ps(self) -> dict[str, int]:
        """How much of that goes into starting DMAs."""
        return {unit: self.union(unit, self.moves) for unit in self.busy_ps if unit != DMA}

    def union(self, unit: str, numbers: Set[int] | None = None) -> int:
        """How long an engine is occupied, by all instructions or by some."""
        return _union(
            (event.start, event.end)
            for event in self.occupied
            if event.unit == unit and (numbers is None or event.number in numbers)
        )

    def work_ps(self, unit: str) -> int:
        """How long an engine computes: it is occupied, and not only by starting DMAs."""
        return self.busy_ps.get(unit, 0) - self.issue_ps.get(unit, 0)

    def unit_of(self, number: int) -> str:
        """The engine an instruction runs on; "dma" if it moves data; empty for no instruction."""
        if not 0 <= number < len(self.instructions):
            return ""
        return DMA if number in self.moves else str(self.instructions[number].engine.name)

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


def _lane(name: str) -> tuple[str, int]:
    """`dma3` is queue 3 of the DMA; other lanes are engines."""
    queue = name[len(DMA) :]
    return (DMA, int(queue)) if name.startswith(DMA) and queue.isdigit() else (name, 0)


def in_rows(lane: list[Occupied]) -> list[Occupied]:
    """The stretches of one lane with rows such that none overlap in a row, as far as `MOST_ROWS` allow.

    Where they overlap at all, the kind that takes most time has the first rows, the others come below it.
    """
    lane = sorted(lane, key=lambda o: (o.start, o.end, o.number))
    ends: list[int] = []
    plain = [_row(ends, event, 0) for event in lane]
    if not any(plain):
        return lane
    total: defaultdict[str, int] = defaultdict(int)
    for event in lane:
        total[event.kind] += event.end - event.start
    main = max(total, key=lambda kind: (total[kind], kind))
    ends = []
    first = [event._replace(row=_row(ends, event, 0)) for event in lane if event.kind == main]
    floor = len(ends)
    return first + [event._replace(row=_row(ends, event, floor)) for event in lane if event.kind != main]


def _row(ends: list[int], event: Occupied, floor: int) -> int:
    """The first row from `floor` on that is free; `ends` holds when each row becomes free and is updated."""
    row = next((r for r in range(floor, len(ends)) if ends[r] <= event.start), -1)
    if row < 0 and (len(ends) < MOST_ROWS or floor == len(ends)):
        row = len(ends)
        ends.append(event.end)
    elif row < 0:
        row = min(range(floor, len(ends)), key=ends.__getitem__)
    ends[row] = max(ends[row], event.end)
    return row


def _union(spans: Iterable[tuple[int, int]]) -> int:
    """Length of the union of spans."""
    total = reached = 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
