"""The schedule that imitates a compiler's: an engine does what is ready, in program order where it must choose.

A compiler moves loads ahead of need, fills the gaps of one iteration of a loop with work of another, and lets a store
wait without holding up what follows. How it decides is not published, so no search is imitated but its aim: every lane
is a resource that serves its instructions as soon as they are ready (`Shared`), and what keeps them apart are their
data and the memory of their tiles. Branches of loops on the device and barriers are not crossed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from interpreter.timing.charges import DMA, ENGINES, SHARING, SIMPLE, STREAMING, TENSOR, Charge
from interpreter.timing.resources import Shared
from interpreter.timing.schedule import RAW, CoreSchedule, Meetings
from interpreter.timing.timeline import BARRIER, LOOP, TABLE_LOAD
from interpreter.timing.turns import Turn
from nki.ir.dependency import Dependency
from nki.ir.instruction import Instruction
from nki.target import Target


class OutOfOrder(CoreSchedule):
    """floor: before that no instruction of a lane may start, because of a branch. reached: the latest end of its
    instructions."""

    reorders = True

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
        self.lanes = [Shared() for _ in range(lanes)]
        self.tables: list[str | None] = [None] * lanes
        self.generators = [Shared() for _ in range(lanes)]
        self.queues = [Shared() for _ in range(lanes)]
        self.units: dict[str, Shared] = {}
        self.floor = [0] * lanes
        self.reached = [0] * lanes
        self.turning = [0] * lanes

    def run(self, dependencies: Sequence[Sequence[Dependency]]) -> Meetings:
        """See the base class."""
        trace, lanes = self.trace, self.lanes
        start, end, visible, cause = trace.start, trace.end, trace.visible, trace.cause
        lane_of, floor, reached, turns = self.lane_of, self.floor, self.reached, self.turns
        wake = self.target.semaphore_wake_ps
        for index, charge in enumerate(trace.charges):
            if turns:
                self._turn(index)
            lane = charge.lane
            ready, last = 0, None
            for dependency in dependencies[index]:
                on, kind, _ = dependency
                # The order of one engine's instructions needs no semaphore, only a result does.
                shows = end[on] if lane_of[on] == lane and kind is not RAW else visible[on] + wake
                if shows > ready:
                    ready, last = shows, dependency
            cause[index] = last
            held_up = floor[lane] - ready
            if held_up > 0:
                ready = floor[lane]
            lane_of[index] = lane
            if charge.way == SIMPLE:
                end[index] = finish = lanes[lane].serve(ready, charge.interval)
                start[index] = finish - charge.interval
                visible[index] = finish + charge.after
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
            if end[index] > reached[lane]:
                reached[lane] = end[index]
            if held_up > 0 and self.turning[lane]:
                self._turned(index, lane, held_up)
        return trace

    def _turn(self, index: int) -> None:
        """Loops that begin a pass here: the sequencers that have instructions in their bodies branch, after all that
        comes before and before all that comes after."""
        while self.turns and self.turns[0].at <= index:
            for lane in self.turns.popleft().lanes:
                self.floor[lane] = max(self.floor[lane], self.reached[lane]) + self.target.loop_iteration_ps
                self.turning[lane] += self.target.loop_iteration_ps

    def _turned(self, index: int, lane: int, held_up: int) -> None:
        """The first instruction of an engine after branches is the one they delayed."""
        self.trace.delays.setdefault(index, []).insert(0, (LOOP, min(held_up, self.turning[lane])))
        self.turning[lane] = 0

    def _barrier(self, index: int, charge: Charge, ready: int) -> Generator[tuple[int, int], int]:
        came = max(ready, self.reached[charge.lane])
        met = yield index, came
        if met > came:
            self.trace.delays[index] = [(BARRIER, met - came)]
        self.floor[charge.lane] = self._serve(index, charge, met)

    def _serve(self, index: int, charge: Charge, ready: int) -> int:
        """The engine's own time. Returns its end."""
        trace = self.trace
        trace.end[index] = finish = self.lanes[charge.lane].serve(ready, charge.interval)
        trace.start[index] = finish - charge.interval
        trace.visible[index] = finish + charge.after
        return finish

    def _share(self, index: int, charge: Charge, ready: int) -> None:
        """An instruction that needs a table, a port or a bank."""
        trace, hold = self.trace, charge.interval
        delays = []
        if charge.table is not None and charge.table != self.tables[charge.lane]:
            self.tables[charge.lane] = charge.table
            loading = self.target.scalar_table_load_ps
            ready = self.lanes[charge.lane].serve(ready, loading)
            delays.append((TABLE_LOAD, loading))
        finish = self.lanes[charge.lane].serve(ready, hold)
        for reason, shared in self._shared_by(index, charge):
            later = shared.serve(ready, hold)
            if later > finish:
                delays.append((reason, later - finish))
                finish = later
        if delays:
            trace.delays[index] = delays
        trace.start[index] = finish - hold
        trace.end[index] = finish
        trace.visible[index] = finish + charge.after

    def _stream(self, index: int, charge: Charge, ready: int, early: int) -> None:
        """Steps of which some run behind the engine's back: weights go in while the engine multiplies."""
        trace, lane = self.trace, self.lanes[charge.lane]
        finish = shows = ready
        usable = max(early, self.floor[charge.lane])
        held = 0
        for background, interval, latency, kind, slower in charge.steps:
            if background:
                done = self._unit(kind).serve(usable, interval)
                trace.background.append((index, done - interval, done, kind))
                usable = shows = done + latency
            else:
                finish = lane.serve(max(usable, ready), interval)
                begin = finish - interval
                if slower:
                    trace.cold[index] = trace.cold.get(index, 0) + slower
                elif charge.lane == TENSOR and not 0 <= self.warm_at <= begin:
                    warmed = self._warming(index, begin, interval)
                    finish = max(warmed, lane.serve(begin, warmed - finish))
                held += finish - begin
                shows = finish + latency
        trace.end[index] = finish
        trace.start[index] = finish - held
        trace.visible[index] = shows + self.target.semaphore_signal_ps

    def _unit(self, kind: str) -> Shared:
        """What does the steps of one kind behind the engine's back."""
        unit = self.units.get(kind)
        if unit is None:
            unit = self.units[kind] = Shared()
        return unit

    def _issue(self, index: int, charge: Charge, ready: int) -> int:
        """The part of a DMA on its engine's queue. Returns when data could move."""
        dma, trace = charge.dma, self.trace
        assert dma is not None
        trace.end[index] = made = self.lanes[charge.lane].serve(ready, charge.interval)
        trace.start[index] = made - charge.interval
        if dma.generator:
            made = self.generators[charge.lane].serve(made, dma.generator)
        return made + dma.start

    def _turn_in_queue(self, lane: int, ready: int) -> int:
        floor = self.target.dma_queue_floor_ps
        return self.queues[lane].serve(ready, floor) - floor
