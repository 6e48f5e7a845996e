"""A program as one list of prebound calls: everything that can be decided before the data arrive is decided here."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from interpreter.bind import Binder, Call, Scratch
from interpreter.memory import Blocks, Storage, overlapping_groups, poison, view
from interpreter.shadows import Shadows
from nki.ir.effects import STATES
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Buffer, Program, Shape

Rebinding = tuple[int, int, str, np.dtype[Any], Shape, Shape, int]


class Plan:
    """The executable form of a program.

    calls: what is run, in order.
    rebindings: (call, argument, buffer name, dtype, shape, byte strides, byte offset) of every window on a tensor
    that comes from outside, an argument or a result, whose array differs from call to call.
    lock: a plan owns its on-chip memory, so one thread runs it at a time.
    """

    def __init__(self, program: Program, fill: frozenset[str] = frozenset()) -> None:
        self.program = program
        self.calls: list[Call] = []
        self.rebindings: list[Rebinding] = []
        self.lock = threading.Lock()
        self.external = {b.name: b for b in (*program.arguments, *program.results)}
        self.fill = fill
        for core in program.cores:
            _CorePlan(self, core)


class _CorePlan:
    """Builds the calls of one core into its plan."""

    def __init__(self, plan: Plan, instructions: list[Instruction]) -> None:
        self.plan = plan
        self.blocks = Blocks()
        self.states: dict[str, np.ndarray] = {}
        groups = overlapping_groups([b for b in plan.program.buffers if b.placed and b.memory.on_chip])
        shared = {b.name for group in groups for b in group}
        self.shadows = Shadows(instructions, shared)
        self.binder = Binder(self._storage, self._state, Scratch(), self.shadows)
        births, deaths = _lifetimes(instructions, shared.union(plan.external))
        self._place(plan.program, groups)
        for index, instruction in enumerate(instructions):
            for buffer in births.get(index, ()):
                self._own(buffer)
            self._append(instruction)
            self.shadows.wrote(instruction)
            for buffer in deaths.get(index, ()):
                self.blocks.release(buffer)

    def _place(self, program: Program, groups: list[list[Buffer]]) -> None:
        """Bind what does not follow lifetimes: tensors from outside, constants, tiles that the user made overlap."""
        for buffer in self.plan.external.values():
            self.blocks.external(buffer, np.zeros(buffer.nbytes, np.uint8))
        for buffer in program.buffers:
            if buffer.data is not None and buffer not in self.blocks:
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
        if buffer.name in self.plan.fill:
            self._poison(buffer)

    def _poison(self, buffer: Buffer) -> None:
        self.plan.calls.append((poison, (view(self.blocks[buffer], Access.whole(buffer)),)))

    def _storage(self, buffer: Buffer) -> Storage:
        return self.blocks[buffer]

    def _state(self, name: str) -> np.ndarray:
        """Registers of an engine, as they are at the start of a run."""
        registers = self.states.get(name)
        if registers is None:
            initial = STATES[name].initial(self.plan.program.target.pmax)
            registers = self.states.setdefault(name, initial.copy())
            self.plan.calls.append((np.copyto, (registers, initial)))
        return registers

    def _append(self, instruction: Instruction) -> None:
        calls = self.binder.calls(instruction)
        base = len(self.plan.calls)
        self.plan.calls.extend(calls)
        for window, name, strides, offset in self.binder.external:
            for index, (_, arguments) in enumerate(calls):
                for position, argument in enumerate(arguments):
                    if argument is window:
                        self.plan.rebindings.append(
                            (base + index, position, name, window.dtype, window.shape, strides, offset)
                        )


def _lifetimes(
    instructions: list[Instruction], others: set[str]
) -> tuple[dict[int, list[Buffer]], dict[int, list[Buffer]]]:
    """Buffers by the index of the first and of the last instruction that touches them, without `others`."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    owned: dict[str, Buffer] = {}
    for index, instruction in enumerate(instructions):
        for _, access in instruction.accesses():
            buffer = access.buffer
            if buffer.name in others or buffer.data is not None:
                continue
            owned[buffer.name] = buffer
            first.setdefault(buffer.name, index)
            last[buffer.name] = index
    births: dict[int, list[Buffer]] = {}
    deaths: dict[int, list[Buffer]] = {}
    for name, buffer in owned.items():
        births.setdefault(first[name], []).append(buffer)
        deaths.setdefault(last[name], []).append(buffer)
    return births, deaths
