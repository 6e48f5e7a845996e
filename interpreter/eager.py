"""Executing instructions as they are staged, so that a kernel under a debugger sees values.

The same binder makes the same NumPy calls as in a plan; only the blocks are made when a tile first appears, and fresh
memory is poisoned so that a mistake shows. User-placed tiles live in an image of their memory, so that aliasing
behaves as on the chip.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from interpreter.bind import Binder
from interpreter.memory import Blocks, Image, Storage, poison, view
from interpreter.moving import fetched
from interpreter.workspace import Registers, Scratch
from interpreter.written import WrittenFlags
from nki.enums import MemoryRegion
from nki.ir.effects import STATES
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Buffer
from nki.target import Target


class EagerMachine:
    """One core whose memory grows with the kernel. `arrays` are the argument tensors by buffer name."""

    def __init__(self, target: Target, arrays: Mapping[str, np.ndarray]) -> None:
        self.target = target
        self.arrays = arrays
        self.blocks = Blocks()
        self.images: dict[MemoryRegion, Image] = {}
        self.states: dict[str, np.ndarray] = {}
        self.registers = Registers()
        self.binder = Binder(self._storage, self._state, Scratch(), None, self.registers.__getitem__)
        self.written = WrittenFlags(self.binder)
        self.binder.written = self.written.window

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
        if buffer.placed and buffer.memory.on_chip:
            image = self._image(buffer.memory)
            self.blocks.place(buffer, image)
            image.claim(buffer)
            return
        window = view(self.blocks.own(buffer), Access.whole(buffer))
        if buffer.data is not None:
            window[...] = buffer.data
        else:
            poison(window)

    def _image(self, memory: MemoryRegion) -> Image:
        image = self.images.get(memory)
        if image is None:
            sbuf = memory is MemoryRegion.sbuf
            pitch = self.target.sbuf_partition_bytes if sbuf else self.target.psum_partition_bytes
            image = self.images[memory] = Image(self.target.pmax, pitch)
        return image

    def _state(self, name: str) -> np.ndarray:
        registers = self.states.get(name)
        if registers is None:
            registers = self.states[name] = STATES[name].initial(self.target.pmax)
        return registers

    def execute(self, instruction: Instruction) -> None:
        """Run one instruction now."""
        for access in instruction.writes() if instruction.accumulates else ():
            self.written.follow(access.buffer)
        calls = [*self.written.before(instruction), *self.binder.calls(instruction)]
        with np.errstate(all="ignore"):
            for function, arguments in calls + self.written.wrote(instruction):
                function(*arguments)

    def values(self, access: Access) -> np.ndarray:
        """A copy of what a window holds."""
        if access.dynamic is not None:
            return fetched(self.binder, access)
        return view(self._storage(access.buffer), access).copy()
