"""Executing instructions as they are staged, so that a kernel under a debugger sees values.

The same binder makes the same NumPy calls as in a plan; only the blocks are made when a tile first appears, and fresh
memory is poisoned so that a mistake shows. User-placed tiles live in an image of their memory, so that aliasing
behaves as on the chip.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from interpreter.bind import Binder, Scratch
from interpreter.memory import Blocks, Storage, aligned_bytes, poison, view
from nki.enums import MemoryRegion
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Buffer
from nki.target import Target


class EagerMachine:
    """One core whose memory grows with the kernel. `arrays` are the argument tensors by buffer name."""

    def __init__(self, target: Target, arrays: Mapping[str, np.ndarray]) -> None:
        self.target = target
        self.arrays = arrays
        self.blocks = Blocks()
        self.images: dict[MemoryRegion, np.ndarray] = {}
        self.states: dict[str, np.ndarray] = {}
        self.binder = Binder(self._storage, self._state, Scratch())

    def _storage(self, buffer: Buffer) -> Storage:
        if buffer not in self.blocks:
            self.allocate(buffer)
        return self.blocks[buffer]

    def allocate(self, buffer: Buffer) -> None:
        """Give a new buffer its bytes."""
        given = self.arrays.get(buffer.name) if buffer.role == "argument" else None
        if given is not None:
            self.blocks.external(buffer, given.reshape(-1).view(np.uint8))
            return
        if buffer.placed:
            self.blocks.place(buffer, self._image(buffer.memory))
            return
        window = view(self.blocks.own(buffer), Access.whole(buffer))
        if buffer.data is not None:
            window[...] = buffer.data
        else:
            poison(window)

    def _image(self, memory: MemoryRegion) -> np.ndarray:
        image = self.images.get(memory)
        if image is None:
            sbuf = memory is MemoryRegion.sbuf
            pitch = self.target.sbuf_partition_bytes if sbuf else self.target.psum_partition_bytes
            image = aligned_bytes(self.target.pmax * pitch).reshape(self.target.pmax, pitch)
            self.images[memory] = image
        return image

    def _state(self, name: str, instruction: Instruction, rank: int) -> np.ndarray:
        registers = self.states.setdefault(name, np.zeros(self.target.pmax, np.float32))
        return state_column(registers, instruction, rank)

    def execute(self, instruction: Instruction) -> None:
        """Run one instruction now."""
        with np.errstate(all="ignore"):
            for function, arguments in self.binder.calls(instruction):
                function(*arguments)

    def values(self, access: Access) -> np.ndarray:
        """A copy of what a window holds."""
        return view(self._storage(access.buffer), access).copy()


def state_column(registers: np.ndarray, instruction: Instruction, rank: int) -> np.ndarray:
    """The registers of the lanes an instruction runs on, as a column that broadcasts against its operands."""
    first = next(a for o, a in instruction.accesses() if not o.is_output)
    start = first.start_partition if first.start_partition + first.partitions <= len(registers) else 0
    return registers[start : start + first.partitions].reshape(first.partitions, *(1,) * (rank - 1))
