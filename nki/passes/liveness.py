"""When each on-chip tile is needed: the index of the first and of the last instruction that touches it."""

from __future__ import annotations

from dataclasses import dataclass

from nki.ir.instruction import Instruction
from nki.ir.program import Buffer


@dataclass(frozen=True)
class Live:
    """A tile and the instructions between which it must keep its bytes, both ends included."""

    buffer: Buffer
    first: int
    last: int

    def overlaps(self, other: Live) -> bool:
        """Whether both tiles are needed at one time."""
        return self.first <= other.last and other.first <= self.last


def live_ranges(instructions: list[Instruction]) -> list[Live]:
    """Ranges of all on-chip tiles that some instruction touches, by first use."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    buffers: dict[str, Buffer] = {}
    for index, instruction in enumerate(instructions):
        for _, access in instruction.accesses():
            buffer = access.buffer
            name = buffer.name
            if name not in first:
                if not buffer.memory.on_chip:
                    continue
                first[name] = index
                buffers[name] = buffer
            last[name] = index
    return [Live(buffers[name], first[name], last[name]) for name in first]
