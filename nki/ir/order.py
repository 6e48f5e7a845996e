"""The instructions of a core in one line, with the loops around each: what passes walk over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nki.ir.control import Loop, Node, steps
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


def executed(nodes: list[Node], trips: Iterator[int]) -> Iterator[Instruction]:
    """The instructions in the order in which a run executes them. `trips` says how often each loop ran, in the order
    in which loops were entered; loops with bounds known while staging do not ask."""
    for node in nodes:
        if not isinstance(node, Loop):
            yield node
            continue
        known = steps(node)
        for _ in range(next(trips) if known is None else known):
            yield from executed(node.body, trips)
