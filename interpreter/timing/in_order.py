"""The schedule of kernels that fix their own order: one pass in program order, every queue in order.

An instruction starts when its queue is free and what it depends on is visible. An engine is free again after the
instruction's interval, while the result shows one latency later; a semaphore carries the news.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from interpreter.timing.charges import (
    DMA,
    ENGINES,
    SHARING,
    SIMPLE,
    STREAMING,
    TENSOR,
    Charge,
)
from interpreter.timing.schedule import RAW, CoreSchedule, Meetings
from interpreter.timing.timeline import BARRIER, LOOP, TABLE_LOAD
from interpreter.timing.turns import Turn
from nki.ir.dependency import Dependency
from nki.ir.instruction import Instruction
from nki.target import Target


class InOrder(CoreSchedule):
    """free: when each engine's queue is. turning: what branches of loops will delay its next instruction by."""

    reorders = False

    def __init__(
        self,
        core: int,
        instructions: Sequence[Instruction],
        charges: list[Charge],
        target: Target,
        turns: Sequence[Turn] = (),
    ) -> None:
        super().__init__(core, instructions, charges, target, turns)
        lanes = len(ENGINES)
        self.free = [0] * lanes
        self.tables: list[str | None] = [None] * lanes
        self.generator = [0] * lanes
        self.queues = [0] * lanes
        self.units: dict[str, int] = {}
        self.streaming = 0
        self.turning = [0] * lanes

    def run(self, dependencies: Sequence[Sequence[Dependency]]) -> Meetings:
        """See the base class."""
        trace, free = self.trace, self.free
        start, end, visible, cause = trace.start, trace.end, trace.visible, trace.cause
        lane_of, turns, turning = self.lane_of, self.turns, self.turning
        wake = self.target.semaphore_wake_ps
        for index, charge in enumerate(trace.charges):
            if turns:
                self._turn(index)
            lane = charge.lane
            ready = -1
            for dependency in dependencies[index]:
                on, kind, _ = dependency
                # A queue keeps its own order; only a result must be waited for. Nobody else's work is in order.
                if lane_of[on] != lane or kind is RAW:
                    shows = visible[on]
                    if shows > ready:
                        ready = shows
                        cause[index] = dependency
            ready += wake if ready >= 0 else 1
            lane_of[index] = lane
            if charge.way == SIMPLE:
                begin = free[lane]
                if ready > begin:
                    begin = ready
                start[index] = begin
                end[index] = free[lane] = begin = begin + charge.interval
                visible[index] = begin + charge.after
            elif charge.way == STREAMING:
                self._stream(index, charge, ready, self._early(charge, dependencies[index]))
            elif charge.way == DMA:
                can = self._issue(index, charge, ready)
                self._moved(index, charge, can, can)
                lane_of[index] = -1
            elif charge.way == SHARING:
                self._share(index, charge, ready)
            else:
                yield from self._meet(index, charge, ready)
            if turning[lane]:
                self._turned(index, lane)
        return trace

    def _barrier(self, index: int, charge: Charge, ready: int) -> Generator[tuple[int, int], int]:
        trace, lane = self.trace, charge.lane
        came = max(ready, self.free[lane])
        begin = yield index, came
        if begin > came:
            trace.delays[index] = [(BARRIER, begin - came)]
        trace.start[index] = begin
        trace.end[index] = self.free[lane] = begin + charge.interval
        trace.visible[index] = begin + charge.interval + charge.after

    def _turn(self, index: int) -> None:
        """Loops that begin a pass here: the sequencers that have instructions in their bodies branch."""
        while self.turns and self.turns[0].at <= index:
            for lane in self.turns.popleft().lanes:
                self.free[lane] += self.target.loop_iteration_ps
                self.turning[lane] += self.target.loop_iteration_ps

    def _turned(self, index: int, lane: int) -> None:
        """The first instruction of a queue after branches is the one they delayed."""
        self.trace.delays.setdefault(index, []).insert(0, (LOOP, self.turning[lane]))
        self.turning[lane] = 0

    def _share(self, index: int, charge: Charge, ready: int) -> None:
        """An instruction that needs a table, a port or a bank."""
        trace, lane = self.trace, charge.lane
        begin = max(ready, self.free[lane])
        delays = []
        if charge.table is not None and charge.table != self.tables[lane]:
            self.tables[lane] = charge.table
            delays.append((TABLE_LOAD, self.target.scalar_table_load_ps))
            begin += self.target.scalar_table_load_ps
        hold = charge.interval
        finish = begin + hold
        for reason, shared in self._shared_by(index, charge):
            later = shared.serve(begin, hold)
            if later > finish:
                delays.append((reason, later - finish))
                finish = later
        if delays:
            trace.delays[index] = delays
        trace.start[index] = finish - hold
        trace.end[index] = self.free[lane] = finish
        trace.visible[index] = finish + charge.after

    def _stream(self, index: int, charge: Charge, ready: int, early: int) -> None:
        """Steps of which some run behind the engine's back: weights go in while the engine multiplies.

        New weights may arrive as soon as the multiplication before them has begun, not earlier.
        """
        trace, lane = self.trace, charge.lane
        free = was_free = self.free[lane]
        first = shows = ready
        usable = early
        for position, (background, interval, latency, kind, slower) in enumerate(charge.steps):
            if background:
                begin = max(usable, self.units.get(kind, 0), self.streaming - latency)
                self.units[kind] = finish = begin + interval
                trace.background.append((index, begin, finish, kind))
                usable = shows = finish + latency
            else:
                begin = max(usable, free, ready)
                self.streaming = begin
                free = begin + interval
                if slower:
                    trace.cold[index] = trace.cold.get(index, 0) + slower
                elif charge.lane == TENSOR and not 0 <= self.warm_at <= begin:
                    free = self._warming(index, begin, interval)
                shows = free + latency
            if not position:
                first = begin
        trace.start[index] = begin = max(first, was_free)
        trace.end[index] = self.free[lane] = max(begin, free)
        trace.visible[index] = shows + self.target.semaphore_signal_ps

    def _issue(self, index: int, charge: Charge, ready: int) -> int:
        """The part of a DMA on its engine's queue. Returns when data could move."""
        trace, dma = self.trace, charge.dma
        assert dma is not None
        trace.start[index] = begin = max(ready, self.free[charge.lane])
        trace.end[index] = self.free[charge.lane] = issued = begin + charge.interval
        made = issued
        if dma.generator:
            made = self.generator[charge.lane] = max(issued, self.generator[charge.lane]) + dma.generator
        return made + dma.start

    def _turn_in_queue(self, lane: int, ready: int) -> int:
        begin = max(ready, self.queues[lane])
        self.queues[lane] = begin + self.target.dma_queue_floor_ps
        return begin
