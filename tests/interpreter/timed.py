"""Small programs for the tests of time: instructions whose cost is written where they are used."""

from __future__ import annotations

from typing import Any

import pytest

from interpreter.timing import time_program
from interpreter.timing.timeline import Timeline
from nki import dtypes
from nki.dtypes import DType
from nki.enums import MemoryRegion, dge_mode
from nki.enums import engine as Engine
from nki.ir.cost import Phase, Transfer
from nki.ir.dependency import Dependency
from nki.ir.instruction import REGISTRY, Instruction, Steps
from nki.ir.operands import EVERYWHERE, Kind, attribute, destination, source
from nki.ir.program import Access, Buffer, Program
from nki.passes.dependencies import dependencies
from nki.target import Target, get_target

_ANYTHING = Kind("anything", lambda value: value, repr, lambda value: value)


class timed_work(Instruction):
    """dst = something of a and b, in the phases given."""

    engines = (Engine.vector, Engine.scalar, Engine.gpsimd, Engine.tensor)
    limits = {}

    dst = destination("E", EVERYWHERE)
    a = source("E", EVERYWHERE, default=None)
    b = source("E", EVERYWHERE, default=None)
    phases = attribute(_ANYTHING, ())

    def semantics(self, a: Any) -> Steps:
        yield from ()

    def cost(self, target: Target) -> tuple[Phase, ...]:
        phases: tuple[Phase, ...] = self.phases
        return phases


class timed_sum(timed_work):
    """dst += something of a and b; sums keep their order by themselves."""

    accumulates = True

    dst = destination("E", EVERYWHERE, reads=True)
    a = source("E", EVERYWHERE, default=None)
    b = source("E", EVERYWHERE, default=None)
    phases = attribute(_ANYTHING, ())


class timed_state(timed_work):
    """Work that goes through a register of its engine."""

    states = ("scalar_accumulator",)


for _name in ("timed_work", "timed_sum", "timed_state"):
    del REGISTRY[_name]

NS = 1000
# A DMA of [128, 512] float32: every engine moves 8 rows of 2 KiB at 23 bytes/ns and spends 5 ns on each descriptor.
MOVING = 8 * 2048 * NS * NS // 23_000 + 8 * 5 * NS
STORING = 8 * 2048 * NS * NS // 26_800 + 8 * 5 * NS
ISSUE, START, COMPLETE = 150 * NS, 856 * NS, 300 * NS

STATIC, SOFTWARE, HARDWARE = dge_mode.none, dge_mode.swdge, dge_mode.hwdge


def hbm(name: str, shape: tuple[int, ...], dtype: DType = dtypes.float32, role: str = "internal") -> Buffer:
    """A tensor in HBM."""
    return Buffer(name, shape, dtype, MemoryRegion.shared_hbm, role=role)


def tile(
    name: str,
    shape: tuple[int, ...] = (128, 8),
    at: tuple[int, int] | None = None,
    dtype: DType = dtypes.float32,
    *,
    memory: MemoryRegion = MemoryRegion.sbuf,
    placed: bool = False,
) -> Buffer:
    """A tile; `placed` if the user gave the address, else the allocator did."""
    buffer = Buffer(name, shape, dtype, memory, address=at)
    buffer.placed = placed
    return buffer


def bank(name: str, number: int, columns: int = 8) -> Buffer:
    """A tile in a PSUM bank."""
    return tile(name, (128, columns), (0, number * 2048), memory=MemoryRegion.psum)


def window(buffer: Buffer, *ranges: tuple[int, int] | tuple[int, int, int]) -> Access:
    """`buffer[a:b, c:d:e]`; dimensions left out are whole."""
    whole = Access.whole(buffer)
    offset, shape, strides = 0, [], []
    for position, (size, stride) in enumerate(zip(whole.shape, whole.strides)):
        low, high, step = (*ranges[position], 1)[:3] if position < len(ranges) else (0, size, 1)
        offset += low * stride
        shape.append(-(-(high - low) // step))
        strides.append(stride * step)
    return Access(buffer, buffer.dtype, offset, tuple(shape), tuple(strides))


def _access(value: Buffer | Access | None) -> Access | None:
    return Access.whole(value) if isinstance(value, Buffer) else value


def work(
    engine: Engine,
    dst: Buffer | Access,
    *sources: Buffer | Access,
    cycles: int = 100,
    latency: int = 0,
    phases: tuple[Phase, ...] = (),
    cls: type[Instruction] = timed_work,
    **more: Any,
) -> Instruction:
    """An instruction that holds `engine` for `cycles`, or for `phases`."""
    a, b = (*map(_access, sources), None, None)[:2]
    phases = phases or (Phase(cycles, latency, **more),)
    return cls({"dst": _access(dst), "a": a, "b": b, "phases": phases, "engine": engine})


def move(
    dst: Buffer | Access,
    src: Buffer | Access,
    mode: dge_mode = STATIC,
    engine: Engine = Engine.sync,
    rows: int = 0,
) -> Instruction:
    """A DMA with a descriptor for each row of the on-chip side, or for each of `rows`."""
    to, of = _access(dst), _access(src)
    assert to is not None and of is not None
    side = to if to.memory.on_chip else of
    count = rows or side.partitions
    transfer = Transfer(count, to.size * to.dtype.itemsize // count, mode)
    return work(engine, to, of, phases=(Phase(0, kind="dma", transfer=transfer),))


def program(
    *instructions: Instruction, target: str | Target = "trn2", flags: tuple[str, ...] = ()
) -> Program:
    """A program of one core."""
    made = Program("k", get_target(target), cores=[list(instructions)])
    made.flags.update(flags)
    return made


def timed(
    *instructions: Instruction, target: str | Target = "trn2", schedule: str = "program", **more: Any
) -> Timeline:
    """The timeline of these instructions."""
    made = program(*instructions, target=target)
    return time_program(made, dependencies(made), schedule=schedule, **more)


def edges(*instructions: Instruction) -> list[list[tuple[int, str]]]:
    """Producers and kinds of what each instruction waits for."""
    found: list[list[Dependency]] = dependencies(program(*instructions))[0]
    return [[(dependency.on, dependency.kind.name) for dependency in of_one] for of_one in found]


def starts(timeline: Timeline, lane: str) -> list[int]:
    """Start of every stretch on a lane."""
    return [event.start_ps for event in timeline.events if event.lane == lane]


def near(ps: float) -> Any:
    """Equal but for the rounding of single steps."""
    return pytest.approx(ps, abs=10)
