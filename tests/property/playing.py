"""Steps of a random program, and the three ways to run them: planned, eagerly, and from the printed text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import nki.isa as nisa
from interpreter.eager import EagerMachine
from interpreter.execute import execute
from nki.compiled import Compiled
from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.errors import NkiError
from nki.ir.builder import Builder
from nki.ir.control import Dynamic, Register
from nki.ir.program import Access, Buffer, Program, Shape
from nki.language.device_loops import counted_passes, while_passes
from nki.registers import VirtualRegister
from nki.span import UNKNOWN
from nki.tensor import NkiTensor

Arrays = dict[str, np.ndarray]
LARGEST_INDEX = 2
NEW = "?"
"""Of a register to be made in the first run, which names it."""


@dataclass
class Call:
    """A call of `nisa.<mnemonic>`; `made` names the register it returns."""

    mnemonic: str
    values: dict[str, Any]
    made: str = ""


@dataclass
class Tile:
    """The making of a tensor, an argument or a result if `role` says so."""

    label: str
    shape: Shape
    dtype: DType
    memory: MemoryRegion
    address: tuple[int, int] | None = None
    role: str = "internal"
    name: str = ""


@dataclass
class Repeat:
    """A loop on the device: start, stop and step, or the register that is tested."""

    kind: str
    bounds: tuple[Any, Any, int]
    body: list[Any] = field(default_factory=list)
    counter: str = ""


class Player:
    """Performs steps on a builder. `buffers` and `registers`: this builder's own, by the name in the first run."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.buffers: dict[str, Buffer] = {}
        self.registers: dict[str, Register] = {}

    def play(self, steps: list[Any]) -> Program:
        """Perform all steps."""
        with self.builder:
            for step in steps:
                self.perform(step)
        return self.builder.program

    def perform(self, step: Any) -> Any:
        """Perform one step; returns what it makes."""
        if isinstance(step, Call):
            made = getattr(nisa, step.mnemonic)(**{k: self.value(v) for k, v in step.values.items()})
            if step.made:
                step.made = made.register.name if step.made == NEW else step.made
                self.registers[step.made] = made.register
                return made.register
            return made
        if isinstance(step, Tile):
            return self._tile(step)
        for _ in self.passes(step):
            for inner in step.body:
                self.perform(inner)
        return None

    def _tile(self, step: Tile) -> Buffer:
        program = self.builder.program
        role = "argument" if step.role == "argument" else "internal"
        buffer = self.builder.buffer(
            *(step.shape, step.dtype, step.memory), label=step.label, role=role, address=step.address
        )
        step.name = step.name or buffer.name
        self.buffers[step.name] = buffer
        if step.role == "argument":
            program.arguments.append(buffer)
        elif step.role == "result":
            program.results.append(buffer)
            program.result_form = "tuple"
        return buffer

    def passes(self, loop: Repeat) -> Iterator[None]:
        """The passes of a loop as the builder runs them."""
        if loop.kind == "while":
            for _ in while_passes(self.builder, self._register(loop.bounds[0]), UNKNOWN):
                yield
            return
        start, stop, step = loop.bounds
        bounds = (self._register(start), self._register(stop), step)
        for counter in counted_passes(self.builder, bounds, "i", UNKNOWN, frozen=True):
            loop.counter = loop.counter or counter.register.name
            self.registers[loop.counter] = counter.register
            yield

    def _register(self, value: Any) -> Any:
        return self.registers[value.name] if isinstance(value, Register) else value

    def value(self, value: Any) -> Any:
        """What a kernel would pass for a recorded value."""
        if isinstance(value, Access):
            return NkiTensor._of(self._access(value))
        if isinstance(value, Register):
            return VirtualRegister(self._register(value))
        if isinstance(value, tuple) and value and isinstance(value[0], Access):
            return [self.value(one) for one in value]
        return value

    def _access(self, access: Access) -> Access:
        dynamic = access.dynamic
        if dynamic is not None:
            index = dynamic.index
            index = self._access(index) if isinstance(index, Access) else self._register(index)
            dynamic = Dynamic(dynamic.kind, index, dynamic.stride, dynamic.count)
        buffer = self.buffers[access.buffer.name]
        return Access(buffer, access.dtype, access.offset, access.shape, access.strides, dynamic)


def inputs(program: Program, seed: int) -> Arrays:
    """Bytes for all arguments: any bits, or tame numbers; small ones in the index tensors, which come first."""
    chance = np.random.default_rng(seed)
    arrays: Arrays = {}
    for number, buffer in enumerate(program.arguments):
        kind = buffer.dtype.numpy
        if number < 3:
            array = chance.integers(0, LARGEST_INDEX + 1, buffer.shape).astype(kind)
        elif buffer.dtype.kind == "bool":
            array = chance.integers(0, 2, buffer.shape).astype(kind)
        elif buffer.dtype.kind == "packed" or chance.random() < 0.4:
            array = np.frombuffer(chance.bytes(buffer.nbytes), kind).reshape(buffer.shape).copy()
        else:
            array = (chance.standard_normal(buffer.shape) * 4).astype(np.float32)
            array = (array if buffer.dtype.is_float else np.abs(array)).astype(kind)
        arrays[buffer.name] = array
    return arrays


def planned(program: Program, given: Arrays) -> Arrays | str:
    """All arguments and results after a run of the plan, or the class of the error."""
    arrays = {name: array.copy() for name, array in given.items()}
    try:
        plan = Compiled(program, strict=False).plan
        for buffer in program.results:
            arrays[buffer.name] = np.zeros(buffer.shape, buffer.dtype.numpy)
        execute(plan, arrays)
    except NkiError as error:
        return type(error).__name__
    return arrays


def eagerly(steps: list[Any], target: Any, given: Arrays) -> Arrays | str:
    """The same, every instruction executed as it is staged."""
    arrays = {name: array.copy() for name, array in given.items()}
    machine = EagerMachine(target, arrays)
    builder = Builder("fuzz", target)
    builder.on_append = machine.execute
    builder.read_values = machine.values
    builder.registers = machine.registers.__getitem__
    builder.on_buffer = machine.allocate
    player = Player(builder)
    try:
        program = player.play(steps)
    except NkiError as error:
        return type(error).__name__
    results = [step.name for step in steps if isinstance(step, Tile) and step.role == "result"]
    for name, buffer in zip(results, program.results):
        arrays[name] = machine.values(Access.whole(buffer))
    return arrays


def difference(one: Arrays | str, other: Arrays | str) -> str:
    """The first difference in bits between two outcomes; empty if there is none."""
    if isinstance(one, str) or isinstance(other, str):
        same = isinstance(one, str) and isinstance(other, str) and one == other
        return "" if same else f"{one!r:.60}, {other!r:.60}"
    for name, array in one.items():
        a, b = array.reshape(-1).view(np.uint8), other[name].reshape(-1).view(np.uint8)
        if not np.array_equal(a, b):
            return f"%{name}: {int((a != b).sum())} bytes differ, first at {int(np.argmax(a != b))}"
    return ""
