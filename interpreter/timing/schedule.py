"""What both schedules of a core have in common: the trace they write and the resources that lanes share.

`in_order.py` keeps every engine's instructions in the order of the program, `out_of_order.py` lets an engine do what is
ready first. In neither does a step depend on who wins a race: more work, another dependency or a slower clock never
make a program faster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Generator, Sequence
from typing import ClassVar

from interpreter.timing.charges import EXCHANGE, Charge
from interpreter.timing.resources import DmaEngines, Shared
from interpreter.timing.timeline import BANK_CONFLICT, PORT_CONFLICT, Move, Trace
from interpreter.timing.turns import Turn
from nki.ir.dependency import Dependency, DependencyKind
from nki.ir.instruction import Instruction
from nki.ir.program import Access
from nki.target import Target

RAW = DependencyKind.RAW

Meetings = Generator[tuple[int, int], int, Trace]
"""A core on its way: yields (instruction, when it has come) and is sent when all cores have."""


class CoreSchedule(ABC):
    """The state of one core while its instructions are scheduled. reorders: see `Trace.reordered`."""

    reorders: ClassVar[bool]

    def __init__(
        self,
        core: int,
        instructions: Sequence[Instruction],
        charges: list[Charge],
        target: Target,
        turns: Sequence[Turn] = (),
    ) -> None:
        count = len(instructions)
        self.target = target
        self.instructions = instructions
        self.trace = Trace(
            core,
            charges,
            array("q", bytes(8 * count)),
            array("q", bytes(8 * count)),
            array("q", bytes(8 * count)),
            [None] * count,
            self.reorders,
        )
        self.turns = deque(turns)
        self.ports: dict[str | int, Shared] = {}
        self.dma = DmaEngines(target.dma_engines)
        self.warm_at = -1
        self.lane_of = array("b", bytes(count))

    @abstractmethod
    def run(self, dependencies: Sequence[Sequence[Dependency]]) -> Meetings:
        """Schedule every instruction. At a barrier or an exchange it yields the instruction and when this core has
        come, and is sent when all have."""

    def _shared_by(self, index: int, charge: Charge) -> list[tuple[str, Shared]]:
        """The ports and banks that an instruction takes turns on."""
        found = [(PORT_CONFLICT, self._port(port)) for port in charge.ports]
        if charge.banks:
            values = self.instructions[index].__dict__
            width = self.target.psum_bank_bytes
            banks = [bank for name in charge.banks for bank in _banks(values[name], width)]
            if len(charge.banks) > 1:
                banks = sorted(set(banks))
            found += [(BANK_CONFLICT, self._port(bank)) for bank in banks]
        return found

    def _port(self, name: str | int) -> Shared:
        """A port by its name, or a bank by its number."""
        port = self.ports.get(name)
        if port is None:
            port = self.ports[name] = Shared()
        return port

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

    def _meet(self, index: int, charge: Charge, ready: int) -> Generator[tuple[int, int], int]:
        """An instruction that needs the other core."""
        if charge.way != EXCHANGE:
            yield from self._barrier(index, charge, ready)
            return
        can = self._issue(index, charge, ready)
        met = yield index, can
        self._moved(index, charge, can, met)
        self.lane_of[index] = -1

    @abstractmethod
    def _barrier(self, index: int, charge: Charge, ready: int) -> Generator[tuple[int, int], int]:
        """An engine that waits for the other core."""

    @abstractmethod
    def _issue(self, index: int, charge: Charge, ready: int) -> int:
        """The part of a DMA on its engine's queue. Returns when data could move."""

    def _moved(self, index: int, charge: Charge, can: int, met: int) -> None:
        """The part of a DMA after its issue: from when data could move and the other core, if it takes part, has come,
        its turn in its DMA queue, then the DMA engines."""
        trace, target, dma = self.trace, self.target, charge.dma
        assert dma is not None
        moves = self._turn_in_queue(charge.lane, met) if dma.queued else met
        done = self.dma.serve(moves + dma.spread, dma.services)
        ring = 2 * charge.lane + (not dma.from_hbm)
        trace.moves[index] = Move(ring, trace.end[index], can, met, moves, done)
        trace.visible[index] = done + target.dma_completion_ps

    def _early(self, charge: Charge, dependencies: Sequence[Dependency]) -> int:
        """When the first step of an instruction has what it reads. The order of its engine is kept by the others."""
        visible, lane_of, shows = self.trace.visible, self.lane_of, 0
        for on, kind, name in dependencies:
            if charge.early and name not in charge.early:
                continue
            if visible[on] > shows and (lane_of[on] != charge.lane or kind is RAW):
                shows = visible[on]
        return shows + self.target.semaphore_wake_ps if shows else 0

    @abstractmethod
    def _turn_in_queue(self, lane: int, ready: int) -> int:
        """When a DMA that is ready gets its turn among those that its engine has started."""


def _banks(access: Access, width: int) -> range:
    """The PSUM banks of a window; none if its tile has no address."""
    address = access.buffer.address
    if address is None:
        return range(0)
    first, last = address[1] // width, (address[1] + access.buffer.partition_bytes - 1) // width
    if first == last:  # the whole tile lies in one bank
        return range(first, first + 1)
    reach = sum(abs(step) * (count - 1) for count, step in zip(access.shape[1:], access.strides[1:]))
    first = address[1] + (access.offset % max(1, access.row)) * access.dtype.itemsize
    last = first + (reach + 1) * access.dtype.itemsize - 1
    return range(first // width, last // width + 1)
