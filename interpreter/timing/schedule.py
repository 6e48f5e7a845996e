"""The schedule: one pass over a core's instructions in program order, every queue in order.

An instruction starts when its queue is free and what it depends on is visible. An engine is free again after the
instruction's interval, while the result shows one latency later; a semaphore carries the news. Under the "compiler"
schedule an engine has up to three queues, so that loads run ahead of need and a store that waits holds nothing up:
loads of tensors that nobody writes, other DMAs, and the rest. They share the engine.

No step depends on who wins a race: more work, another dependency or a slower clock never make a program faster.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

from interpreter.timing.charges import DMA, ENGINES, SIMPLE, STREAMING, TENSOR, Charge
from interpreter.timing.dma import DmaCharge
from interpreter.timing.resources import DmaEngines, Shared
from interpreter.timing.timeline import (
    BANK_CONFLICT,
    ENGINE,
    LOOP,
    PORT_CONFLICT,
    TABLE_LOAD,
    Move,
    Trace,
)
from interpreter.timing.turns import Turn
from nki.ir.dependency import Dependency, DependencyKind
from nki.ir.instruction import Instruction
from nki.ir.program import Access
from nki.target import Target

_RAW = DependencyKind.RAW
_QUEUES = ("", "load", "store")
"""The queues of an engine: its own, and two that only the "compiler" schedule uses."""


class CoreSchedule:
    """The state of one core while its instructions are scheduled."""

    def __init__(
        self,
        core: int,
        instructions: Sequence[Instruction],
        charges: list[Charge],
        target: Target,
        split: bool,
        turns: Sequence[Turn] = (),
    ) -> None:
        count = len(instructions)
        self.target = target
        self.instructions = instructions
        self.split = split
        self.trace = Trace(
            core,
            charges,
            array("q", bytes(8 * count)),
            array("q", bytes(8 * count)),
            array("q", bytes(8 * count)),
            [None] * count,
            array("q", bytes(8 * count)),
        )
        queues = len(ENGINES) * len(_QUEUES)
        self.free = [0] * queues
        self.last = [-1] * queues
        self.queue_of = array("b", bytes(count))
        self.tables: list[str | None] = [None] * queues
        self.ports: dict[str, Shared] = {}
        self.engines: dict[int, Shared] = {}
        self.dma = DmaEngines(target.dma_engines)
        self.generator = [0] * len(ENGINES)
        self.turn: dict[int, int] = {}
        self.warm_at = -1
        self.units: dict[tuple[int, str], int] = {}
        self.streaming = [0] * queues
        self.turns = deque(turns)
        self.turning = [0] * queues

    def run(self, dependencies: Sequence[Sequence[Dependency]]) -> Trace:
        """Schedule every instruction."""
        trace, free, last = self.trace, self.free, self.last
        start, end, visible, cause = trace.start, trace.end, trace.visible, trace.cause
        before, queue_of = trace.before, self.queue_of
        wake = self.target.semaphore_wake_ps
        queues, shared = self._queues(), self.engines
        turns, turning = self.turns, self.turning
        for index, charge in enumerate(trace.charges):
            if turns:
                self._turn(index)
            queue = charge.lane if queues is None else queues[index]
            ready = -1
            for dependency in dependencies[index]:
                on, kind, _ = dependency
                # A queue keeps its own order; only a result must be waited for. Nobody else's work is in order.
                if queue_of[on] != queue or kind is _RAW:
                    shows = visible[on]
                    if shows > ready:
                        ready = shows
                        cause[index] = dependency
            ready += wake if ready >= 0 else 1
            way = charge.way
            if way == SIMPLE and charge.lane not in shared:
                begin = free[queue]
                if ready > begin:
                    begin = ready
                start[index] = begin
                end[index] = free[queue] = begin = begin + charge.interval
                visible[index] = begin + charge.after
            elif way == STREAMING:
                self._stream(index, charge, queue, ready)
            elif way == DMA:
                self._dma(index, charge, queue, ready)
            else:
                self._share(index, charge, queue, ready)
            if turning[queue]:
                self._turned(index, queue)
            before[index], last[queue] = last[queue], index
            queue_of[index] = -1 if way == DMA else queue
        return trace

    def _turn(self, index: int) -> None:
        """Loops that begin a pass here: the sequencers that have instructions in their bodies branch."""
        while self.turns and self.turns[0].at <= index:
            for lane in self.turns.popleft().lanes:
                for queue in range(lane, len(self.free), len(ENGINES)):
                    self.free[queue] += self.target.loop_iteration_ps
                    self.turning[queue] += self.target.loop_iteration_ps

    def _turned(self, index: int, queue: int) -> None:
        """The first instruction of a queue after branches is the one they delayed."""
        self.trace.delays.setdefault(index, []).insert(0, (LOOP, self.turning[queue]))
        self.turning[queue] = 0

    def _queues(self) -> list[int] | None:
        """The queue of each instruction under the "compiler" schedule; engines that several queues share are noted."""
        if not self.split:
            return None
        written = written_in_hbm(self.instructions, self.trace.charges)
        queues = []
        for instruction, charge in zip(self.instructions, self.trace.charges):
            kind = 0
            if charge.dma is not None:
                kind = 1 if _is_load(instruction, charge.dma, written) else 2
            queues.append(charge.lane + kind * len(ENGINES))
        for lane in range(len(ENGINES)):
            if len({queue for queue in set(queues) if queue % len(ENGINES) == lane}) > 1:
                self.engines[lane] = Shared()
        return queues

    def _share(self, index: int, charge: Charge, queue: int, ready: int) -> None:
        """An instruction that needs a table, a port, a bank, or an engine that has several queues."""
        trace = self.trace
        begin = max(ready, self.free[queue])
        delays = []
        if charge.table is not None and charge.table != self.tables[queue]:
            self.tables[queue] = charge.table
            loaded = self.free[queue] + self.target.scalar_table_load_ps
            delays.append((TABLE_LOAD, loaded - self.free[queue]))
            begin = max(begin, loaded)
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
        trace.end[index] = self.free[queue] = finish
        trace.visible[index] = finish + charge.after

    def _shared_by(self, index: int, charge: Charge) -> list[tuple[str, Shared]]:
        """The resources that an instruction takes turns on."""
        names = [(PORT_CONFLICT, port) for port in charge.ports]
        if charge.banks:
            values = self.instructions[index].__dict__
            width = self.target.psum_bank_bytes
            banks = {bank for name in charge.banks for bank in _banks(values[name], width)}
            names += [(BANK_CONFLICT, f"bank {bank}") for bank in sorted(banks)]
        found = [(reason, self.ports.setdefault(name, Shared())) for reason, name in names]
        if charge.lane in self.engines:
            found.append((ENGINE, self.engines[charge.lane]))
        return found

    def _stream(self, index: int, charge: Charge, queue: int, ready: int) -> None:
        """Steps of which some run behind the engine's back: weights go in while the engine multiplies.

        New weights may arrive as soon as the multiplication before them has begun, not earlier.
        """
        trace = self.trace
        free = was_free = self.free[queue]
        usable = first = shows = ready
        for position, (background, interval, latency, kind) in enumerate(charge.steps):
            if background:
                unit = (queue, kind)
                begin = max(usable, self.units.get(unit, 0), self.streaming[queue] - latency)
                self.units[unit] = finish = begin + interval
                trace.background.append((index, begin, finish, kind))
                usable = shows = finish + latency
            else:
                begin = max(usable, free)
                self.streaming[queue] = begin
                free = begin + interval
                if charge.lane == TENSOR and not 0 <= self.warm_at <= begin:
                    free = self._warming(index, begin, interval)
                shows = free + latency
            if not position:
                first = begin
        trace.start[index] = begin = max(first, was_free)
        trace.end[index] = self.free[queue] = max(begin, free)
        trace.visible[index] = shows + self.target.semaphore_signal_ps

    def _warming(self, index: int, begin: int, work: int) -> int:
        """When work is done that starts on a cold Tensor engine, which is slower for a while after it first starts.

        The machine counts its work of the last microseconds instead; counting time keeps a delay from being a gain.
        """
        target = self.target
        if self.warm_at < 0:
            self.warm_at = begin + target.tensor_warmup_ps
        done = (self.warm_at - begin) * target.tensor_cold_percent // 100
        finish = self.warm_at + work - done
        if work < done:
            finish = begin + -(-work * 100 // target.tensor_cold_percent)
        self.trace.cold[index] = self.trace.cold.get(index, 0) + finish - begin - work
        return finish

    def _dma(self, index: int, charge: Charge, queue: int, ready: int) -> None:
        """Issue on the engine's queue, then the descriptor generator, the DMA queue, and the DMA engines."""
        trace, target, dma = self.trace, self.target, charge.dma
        assert dma is not None
        begin = max(ready, self.free[queue])
        issued = begin + charge.interval
        if charge.lane in self.engines:
            later = self.engines[charge.lane].serve(begin, charge.interval)
            if later > issued:
                trace.delays[index] = [(ENGINE, later - issued)]
                issued = later
        trace.start[index] = issued - charge.interval
        trace.end[index] = self.free[queue] = issued
        made = issued
        if dma.generator:
            made = self.generator[charge.lane] = max(issued, self.generator[charge.lane]) + dma.generator
        can = made + dma.start
        ring = 2 * charge.lane + (not dma.from_hbm)
        moves = max(can, self.turn.get(ring, 0))
        self.turn[ring] = moves + target.dma_queue_floor_ps
        done = self.dma.serve(moves, dma.services)
        trace.moves[index] = Move(ring, issued, can, moves, done)
        trace.visible[index] = done + target.dma_completion_ps


def written_in_hbm(instructions: Sequence[Instruction], charges: Sequence[Charge]) -> set[int]:
    """Ids of the HBM tensors that some DMA writes."""
    return {
        id(access.buffer)
        for instruction, charge in zip(instructions, charges)
        if charge.dma is not None and charge.dma.into_hbm
        for access in instruction.writes()
    }


def _is_load(instruction: Instruction, dma: DmaCharge, written: set[int]) -> bool:
    """Whether a DMA brings in what nobody computes, so that it may run ahead."""
    if not dma.from_hbm or dma.into_hbm:
        return False
    return all(access.memory.is_hbm and id(access.buffer) not in written for access in instruction.reads())


def _banks(access: Access, width: int) -> range:
    """The PSUM banks of a window; none if its tile has no address."""
    address = access.buffer.address
    if address is None:
        return range(0)
    reach = sum(abs(step) * (count - 1) for count, step in zip(access.shape[1:], access.strides[1:]))
    first = address[1] + (access.offset % max(1, access.row)) * access.dtype.itemsize
    last = first + (reach + 1) * access.dtype.itemsize - 1
    return range(first // width, last // width + 1)
