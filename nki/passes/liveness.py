"""When each on-chip tile is needed: the index of the first and of the last instruction that touches it.

Indices count the instructions of a core in one line. A tile from outside a loop that is touched inside is needed during
the whole loop, since the body runs again; a tile allocated in a body is new in every pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from nki.ir.control import Node
from nki.ir.order import line_up
from nki.ir.program import Buffer
from nki.span import UNKNOWN, Span


@dataclass(frozen=True)
class Live:
    """A tile and the instructions between which it must keep its bytes, both ends included."""

    buffer: Buffer
    first: int
    last: int
    span: Span = UNKNOWN
    """Where it is needed first."""

    def overlaps(self, other: Live) -> bool:
        """Whether both tiles are needed at one time."""
        return self.first <= other.last and other.first <= self.last


def live_ranges(nodes: list[Node]) -> list[Live]:
    """Ranges of all on-chip tiles that some instruction touches, by first use."""
    line = line_up(nodes)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    buffers: dict[str, Buffer] = {}
    spans: dict[str, Span] = {}
    for index, (instruction, around) in enumerate(zip(line.instructions, line.around)):
        for access in instruction.touched():
            buffer = access.buffer
            name = buffer.name
            if name not in buffers:
                if not buffer.memory.on_chip:
                    continue
                buffers[name] = buffer
                spans[name] = instruction.span
            low, high = (index, index) if not around else line.span(index, buffer)
            if name not in first or low < first[name]:
                first[name] = low
            if high > last.get(name, -1):
                last[name] = high
    ranges = [Live(buffers[name], first[name], last[name], spans[name]) for name in buffers]
    return sorted(ranges, key=lambda live: live.first)
