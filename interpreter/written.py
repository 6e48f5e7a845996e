"""Which elements accumulating instructions have written, kept while a plan runs.

Staging decides this nearly always (`nki/ir/groups.py`). In a loop on the device the first pass overwrites what later
passes add to; only the tensors of instructions that need it are followed, with one flag per byte.
"""

from __future__ import annotations

import numpy as np

from interpreter.loops import Call
from nki.ir.instruction import Instruction
from nki.ir.order import Line
from nki.ir.program import Access, Buffer


class WrittenFlags:
    """The flags of the tensors that some instruction of a core asks for."""

    def __init__(self, line: Line) -> None:
        asked = {a.buffer.name: a.buffer for i in line.instructions if i.accumulates for a in i.open_groups()}
        self._flags = {name: np.zeros(buffer.nbytes, np.bool_) for name, buffer in asked.items()}

    def window(self, access: Access) -> np.ndarray:
        """The flags of a window, one per element."""
        return self._bytes(access)[..., 0]

    def _bytes(self, access: Access) -> np.ndarray:
        size = access.dtype.itemsize
        flags = self._flags[access.buffer.name]
        strides = (*(stride * size for stride in access.strides), 1)
        return np.ndarray((*access.shape, size), np.bool_, flags, access.offset * size, strides)

    def made(self, buffer: Buffer) -> list[Call]:
        """Calls for a tensor that is new: nothing of it is written."""
        flags = self._flags.get(buffer.name)
        return [] if flags is None else [(np.copyto, (flags, False))]

    def restart(self) -> list[Call]:
        """Calls for the start of a run."""
        return [(np.copyto, (flags, False)) for flags in self._flags.values()]

    def wrote(self, instruction: Instruction) -> list[Call]:
        """Calls for after an instruction: accumulating ones mark what they wrote, others end its group."""
        if not self._flags:
            return []
        return [
            (np.copyto, (self._bytes(access), instruction.accumulates))
            for access in instruction.writes()
            if access.buffer.name in self._flags
        ]
