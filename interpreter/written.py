"""Which elements accumulating instructions have written, kept while a program runs.

Staging decides this nearly always (`nki/ir/groups.py`). In a loop on the device the first pass overwrites what later
passes add to, and where a register places a window only the run tells which elements it was; only the tensors of
instructions that need it are followed, with one flag per byte.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from interpreter.bind import Binder
from interpreter.loops import Call
from interpreter.moving import flag_calls
from nki.ir.instruction import Instruction
from nki.ir.order import Line
from nki.ir.program import Access, Buffer


class WrittenFlags:
    """The flags of some tensors, as windows are placed by the registers and tiles of `binder`."""

    def __init__(self, binder: Binder, buffers: Iterable[Buffer] = ()) -> None:
        self._binder = binder
        self._flags: dict[str, np.ndarray] = {}
        for buffer in buffers:
            self.follow(buffer)

    def follow(self, buffer: Buffer) -> None:
        """Keep flags of this tensor too, of which nothing has been written."""
        if buffer.name not in self._flags:
            self._flags[buffer.name] = np.zeros(buffer.nbytes, np.bool_)

    def window(self, access: Access) -> np.ndarray:
        """The flags of a window, with one more axis for the bytes of an element."""
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

    def before(self, instruction: Instruction) -> list[Call]:
        """Calls for before an instruction, which may overwrite the index that places its output: that output counts as
        written. Whether the places are legal is decided here as in the instruction."""
        if not self._flags or not instruction.is_dynamic:
            return []
        calls: list[Call] = []
        for operand, access in instruction.pairs:
            flags = self._flags.get(access.buffer.name)
            if operand.is_output and access.dynamic is not None and flags is not None:
                calls += flag_calls(self._binder, instruction, operand, flags, instruction.accumulates)
        return calls

    def wrote(self, instruction: Instruction) -> list[Call]:
        """Calls for after an instruction: accumulating ones mark what they wrote, others end its group."""
        if not self._flags:
            return []
        return [
            (np.copyto, (self.window(access), instruction.accumulates))
            for access in instruction.writes()
            if access.dynamic is None and access.buffer.name in self._flags
        ]


def undecided_tensors(line: Line) -> list[Buffer]:
    """The tensors of which some instruction needs to know, while running, what has been written."""
    asked = {a.buffer.name: a.buffer for i in line.instructions if i.accumulates for a in i.open_groups()}
    return list(asked.values())
