"""A program as one list of prebound calls: everything that can be decided before the data arrive is decided here."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from interpreter.bind import Binder, Call
from interpreter.loops import Trips, run_all, run_for, run_while
from interpreter.memory import Blocks, Storage, overlapping_groups, poison, view
from interpreter.shadows import Shadows
from interpreter.workspace import Registers, Scratch
from interpreter.written import WrittenFlags, undecided_tensors
from nki.enums import MemoryRegion
from nki.ir.control import Loop, Node, Register, steps
from nki.ir.effects import STATES
from nki.ir.instruction import Instruction
from nki.ir.order import Line, line_up
from nki.ir.program import Access, Buffer, Program, Shape

Rebinding = tuple[list[Call], int, int, str, np.dtype[Any], Shape, Shape, int]


class Plan:
    """The executable form of a program.

    calls: what is run, in order; a loop is one call that holds its body. others: the same for further cores.
    shared: the internal tensors of shared HBM, which all cores see.
    rebindings: (list of calls, call, argument, buffer name, dtype, shape, byte strides, byte offset) of every window on
    a tensor that comes from outside, an argument or a result, whose array differs from call to call.
    trips: how often loops ran, core by core, if somebody counts.
    lock: a plan owns its on-chip memory, so one thread runs it at a time.
    """

    def __init__(self, program: Program, fill: frozenset[str] = frozenset()) -> None:
        self.program = program
        self.calls: list[Call] = []
        self.others: list[list[Call]] = [[] for _ in program.cores[1:]]
        self.rebindings: list[Rebinding] = []
        self.trips = [Trips() for _ in program.cores]
        self.lock = threading.Lock()
        self.external = {b.name: b for b in (*program.arguments, *program.results)}
        self.fill = fill
        self.shared = Blocks()
        for buffer in shared_tensors(program):
            self.shared.own(buffer)
        for buffer in shared_tensors(program):
            if buffer.name in fill:
                self.calls.append((poison, (view(self.shared[buffer], Access.whole(buffer)),)))
        for nodes, calls, trips in zip(program.cores, [self.calls, *self.others], self.trips):
            _CorePlan(self, nodes, calls, trips)


class _CorePlan:
    """Builds the calls of one core into its plan."""

    def __init__(self, plan: Plan, nodes: list[Node], calls: list[Call], trips: Trips) -> None:
        self.plan = plan
        self.trips = trips
        self.blocks = Blocks()
        self.states: dict[str, np.ndarray] = {}
        self.registers = Registers()
        self.start: list[Call] = []
        self.calls = calls
        self.calls.append((run_all, (self.start,)))
        self.index = 0
        groups = overlapping_groups([b for b in plan.program.buffers if b.placed and b.memory.on_chip])
        shared = {b.name for group in groups for b in group}
        self.line = line = line_up(nodes)
        # Of shared tensors no widened copies are kept: another core may write them at any time.
        self.shadows = Shadows(line, shared.union(plan.shared.names()))
        self.binder = Binder(self._storage, self._state, Scratch(), self.shadows, self.registers.__getitem__)
        self.written = WrittenFlags(self.binder, undecided_tensors(line))
        self.binder.written = self.written.window
        self.binder.images = bool(groups)
        others = shared.union(plan.external, plan.shared.names())
        self.births, self.deaths = _lifetimes(line, others)
        self.renewed, _ = _lifetimes(line, {b.name for b in plan.program.buffers} - shared)
        self._place(plan.program, groups)
        self._nodes(nodes, self.calls, None)
        self.start += [(self.registers.clear, ()), *self.written.restart()]

    def _nodes(self, nodes: list[Node], calls: list[Call], loop: Loop | None) -> None:
        outer, self.calls = self.calls, calls
        self.shadows.loop = loop
        for node in nodes:
            if isinstance(node, Loop):
                self._own_before(node)
                self._renew(loop)
                self._loop(node)
                self.shadows.loop = loop
                continue
            for buffer in self.births.get(self.index, ()):
                if buffer not in self.blocks:
                    self._own(buffer)
            self._renew(loop)
            self.calls += self.written.before(node)
            self._append(node)
            self.calls += self.written.wrote(node)
            self.shadows.wrote(node)
            for buffer in self.deaths.get(self.index, ()):
                self.blocks.release(buffer)
            self.index += 1
        self.calls = outer

    def _renew(self, loop: Loop | None) -> None:
        """Tiles that the user laid over others have one block, but what is written to them is nothing in each pass."""
        for buffer in self.renewed.get(self.index, ()):
            if buffer.loop is loop:
                self.calls += self.written.made(buffer)

    def _own_before(self, loop: Loop) -> None:
        """Make the blocks of tensors from outside the loop that its first instruction is the first to need."""
        if loop not in self.line.extents:
            return
        around = self.line.around[self.index]
        inside = around[around.index(loop) :]
        for buffer in self.births.get(self.index, ()):
            if buffer.loop not in inside and buffer not in self.blocks:
                self._own(buffer)

    def _loop(self, loop: Loop) -> None:
        body: list[Call] = []
        ahead, self.shadows.ahead = self.shadows.ahead, []
        self._nodes(loop.body, body, loop)
        self.calls += self.shadows.ahead
        self.shadows.ahead = ahead
        trips = self.trips
        if loop.kind == "while":
            assert loop.condition is not None
            self.calls.append((run_while, (body, self.registers[loop.condition], trips)))
            return
        assert loop.counter is not None
        start, stop = (self.registers[b] if isinstance(b, Register) else b for b in (loop.start, loop.stop))
        counted = trips if steps(loop) is None else None
        self.calls.append((run_for, (body, self.registers[loop.counter], (start, stop, loop.step), counted)))

    def _place(self, program: Program, groups: list[list[Buffer]]) -> None:
        """Bind what does not follow lifetimes: tensors from outside, constants, tiles that the user made overlap."""
        for buffer in self.plan.external.values():
            self.blocks.external(buffer, np.zeros(buffer.nbytes, np.uint8))
        for buffer in program.buffers:
            if buffer in self.plan.shared:
                self.blocks.share(buffer, self.plan.shared[buffer])
            elif buffer.data is not None and buffer not in self.blocks:
                storage = self.blocks.own(buffer)
                view(storage, Access.whole(buffer))[...] = buffer.data
        for group in groups:
            self.blocks.shared(group)
        filled = {b.name for group in groups if any(b.name in self.plan.fill for b in group) for b in group}
        for buffer in reversed(program.buffers):  # a byte holds the poison of the first tile that has it
            if buffer.name in filled:
                self._poison(buffer)

    def _own(self, buffer: Buffer) -> None:
        self.blocks.own(buffer)
        self.calls += self.written.made(buffer)
        if buffer.name in self.plan.fill:
            self._poison(buffer)

    def _poison(self, buffer: Buffer) -> None:
        self.calls.append((poison, (view(self.blocks[buffer], Access.whole(buffer)),)))

    def _storage(self, buffer: Buffer) -> Storage:
        return self.blocks[buffer]

    def _state(self, name: str) -> np.ndarray:
        """Registers of an engine, as they are at the start of a run."""
        registers = self.states.get(name)
        if registers is None:
            initial = STATES[name].initial(self.plan.program.target.pmax)
            registers = self.states.setdefault(name, initial.copy())
            self.start.append((np.copyto, (registers, initial)))
        return registers

    def _append(self, instruction: Instruction) -> None:
        calls = self.binder.calls(instruction)
        base = len(self.calls)
        self.calls.extend(calls)
        for window, name, strides, offset in self.binder.external:
            for index, (_, arguments) in enumerate(calls):
                for position, argument in enumerate(arguments):
                    if argument is window:
                        place = (window.dtype, window.shape, strides, offset)
                        self.plan.rebindings.append((self.calls, base + index, position, name, *place))


def shared_tensors(program: Program) -> list[Buffer]:
    """Tensors in shared HBM that neither come from outside nor go there, in a program for several cores."""
    if len(program.cores) == 1:
        return []
    outside = {b.name for b in (*program.arguments, *program.results)}
    shared = MemoryRegion.shared_hbm
    return [b for b in program.buffers if b.memory is shared and b.name not in outside and b.data is None]


def _lifetimes(line: Line, others: set[str]) -> tuple[dict[int, list[Buffer]], dict[int, list[Buffer]]]:
    """Buffers by the index of the first and of the last instruction that needs them, without `others`. A tensor from
    outside a loop that is touched inside is needed in every pass."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    owned: dict[str, Buffer] = {}
    for index, (instruction, around) in enumerate(zip(line.instructions, line.around)):
        for access in instruction.touched():
            buffer = access.buffer
            if buffer.name in others or buffer.data is not None:
                continue
            owned[buffer.name] = buffer
            low, high = (index, index) if not around else line.span(index, buffer)
            first[buffer.name] = min(first.get(buffer.name, low), low)
            last[buffer.name] = max(last.get(buffer.name, high), high)
    births: dict[int, list[Buffer]] = {}
    deaths: dict[int, list[Buffer]] = {}
    for name, buffer in owned.items():
        births.setdefault(first[name], []).append(buffer)
        deaths.setdefault(last[name], []).append(buffer)
    return births, deaths
