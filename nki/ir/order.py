"""The instructions of a core in one line, with the loops around each: what passes walk over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from nki.ir.control import Loop, Node, Register, steps
from nki.ir.instruction import Instruction
from nki.ir.storage import Buffer


@dataclass
class Line:
    """A core written out, loop bodies once.

    instructions: in order of the text; around: for each, its loops from the outermost in.
    extents: loop -> index of the first and of the last instruction of its body (empty loops are left out).
    """

    instructions: list[Instruction] = field(default_factory=list)
    around: list[tuple[Loop, ...]] = field(default_factory=list)
    extents: dict[Loop, tuple[int, int]] = field(default_factory=dict)

    def span(self, index: int, buffer: Buffer) -> tuple[int, int]:
        """The instructions that a touch at `index` makes a tensor live for: one from outside a loop is needed during
        the whole loop, since the body runs again; one allocated in the body is new in every pass."""
        around = self.around[index]
        inside = around.index(buffer.loop) + 1 if buffer.loop in around else 0
        return (index, index) if inside == len(around) else self.extents[around[inside]]


def line_up(nodes: list[Node]) -> Line:
    """The core as a line."""
    line = Line()
    _walk(nodes, (), line)
    return line


def _walk(nodes: list[Node], around: tuple[Loop, ...], line: Line) -> None:
    for node in nodes:
        if isinstance(node, Loop):
            first = len(line.instructions)
            _walk(node.body, (*around, node), line)
            if len(line.instructions) > first:
                line.extents[node] = (first, len(line.instructions) - 1)
        else:
            line.instructions.append(node)
            line.around.append(around)


class Test(NamedTuple):
    """A loop on the device that decides whether its body runs, before instruction `at` of the executed ones.

    first: the loop begins with it. taken: the body runs.
    """

    at: int
    loop: Loop
    first: bool
    taken: bool

    def registers(self) -> list[Register]:
        """The registers it waits for: bounds are read once, a condition is tested before each pass."""
        return self.loop.registers() if self.first or self.loop.kind == "while" else []


@dataclass
class Execution:
    """What a core does in one run: instructions in the order of execution, loop bodies as often as they ran.

    tests: every decision of a loop, in order of time.
    """

    instructions: list[Instruction] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)


def executed(nodes: list[Node], trips: Iterator[int]) -> Execution:
    """The core as a run executes it. `trips` says how often each loop ran, in the order in which loops were entered;
    loops with bounds known while staging do not ask."""
    execution = Execution()
    _execute(nodes, trips, execution)
    return execution


def _execute(nodes: list[Node], trips: Iterator[int], execution: Execution) -> None:
    for node in nodes:
        if not isinstance(node, Loop):
            execution.instructions.append(node)
            continue
        known = steps(node)
        passes = next(trips) if known is None else known
        for number in range(passes):
            execution.tests.append(Test(len(execution.instructions), node, number == 0, True))
            _execute(node.body, trips, execution)
        execution.tests.append(Test(len(execution.instructions), node, passes == 0, False))


def is_decided(nodes: list[Node]) -> bool:
    """Whether all loops have bounds known while staging, so that no run is needed to tell what is executed."""
    return all(steps(n) is not None and is_decided(n.body) for n in nodes if isinstance(n, Loop))
