"""A second machine that is slow and simple: every instruction runs on copies of its operands. Tests nothing.

Memory is bytes, and every element's bytes are looked up by index arithmetic: no views, no sharing, no conversions
prebound. What an instruction computes comes from the instruction; where its operands lie, in which order they are
read and stored and what overlaps what is decided here, independently of `interpreter/`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.dtypes import cast_into, round_tf32
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access, Buffer, Program

PITCH = 1 << 14
"""Bytes of a partition that the images of SBUF and PSUM keep; tests place tiles below."""


class Oracle:
    """One run of a program on `arrays`, the arguments by name. `fill` is the byte of memory nobody has written."""

    def __init__(self, program: Program, arrays: dict[str, np.ndarray], fill: int = 0) -> None:
        self.program = program
        self.memory: dict[object, np.ndarray] = {}
        self.registers: dict[str, np.ndarray] = {}
        pmax = program.target.pmax
        for buffer in program.buffers:
            if buffer.name in arrays:
                self.memory[buffer.name] = arrays[buffer.name].reshape(-1).view(np.uint8).copy()
            elif buffer.placed and buffer.memory.on_chip:
                self.memory.setdefault(buffer.memory, np.full(pmax * PITCH, fill, np.uint8))
            else:
                self.memory[buffer.name] = np.full(buffer.nbytes, fill, np.uint8)
            if buffer.data is not None:
                self.write(Access.whole(buffer), np.asarray(buffer.data))

    def run(self) -> tuple[np.ndarray, ...]:
        """Execute everything; the results in order."""
        with np.errstate(all="ignore"):
            for instruction in self.program.instructions():
                self.step(instruction)
        return tuple(self.read(Access.whole(buffer)) for buffer in self.program.results)

    def positions(self, access: Access) -> tuple[np.ndarray, np.ndarray]:
        """The memory of a window, and where in it the bytes of each element are: [*shape, itemsize]."""
        size = access.dtype.itemsize
        element = np.full(access.shape, access.offset)
        for axis, stride in enumerate(access.strides):
            index = np.arange(access.shape[axis]) * stride
            element = element + index.reshape([-1 if i == axis else 1 for i in range(len(access.shape))])
        at = element[..., None] * size + np.arange(size)
        buffer: Buffer = access.buffer
        if buffer.placed and buffer.memory.on_chip and buffer.address is not None:
            row, column = np.divmod(at, buffer.partition_bytes)
            at = (row + buffer.address[0]) * PITCH + column + buffer.address[1]
            return self.memory[buffer.memory], at
        return self.memory[buffer.name], at

    def read(self, access: Access) -> np.ndarray:
        """A copy of a window."""
        memory, at = self.positions(access)
        return memory[at].view(access.dtype.numpy).reshape(access.shape)

    def write(self, access: Access, values: np.ndarray) -> None:
        """Store a window, element after element in row-major order."""
        memory, at = self.positions(access)
        stored = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        memory[at.reshape(-1)] = stored

    def step(self, instruction: Instruction) -> None:
        """Read everything, compute, store everything in the order of the operands."""
        shapes = instruction.array_shapes() if instruction.layout == "declared" else {}
        seen = _Seen(self, instruction)
        for spec in instruction.registers:
            setattr(seen, spec.name, instruction.__dict__[spec.name])
        for operand in instruction.operands:
            value = instruction.__dict__[operand.name]
            if isinstance(value, Access):
                value = self._operand(instruction, operand, value, shapes)
            setattr(seen, operand.name, value)
        for function, arguments in list(instruction.semantics(seen)):
            function(*arguments)
        for operand, access in instruction.accesses():
            if operand.is_output:
                self._store(access, getattr(seen, operand.name))

    def _operand(
        self, instruction: Instruction, operand: Operand, access: Access, shapes: dict[str, Any]
    ) -> np.ndarray:
        flat = (access.size,) if len(operand.dims) == 1 else (access.partitions, access.free)
        stored = self.read(access).reshape(shapes.get(operand.name, flat))
        compute = instruction.compute_of(operand)
        if compute == "raw" or (compute == "int32" and stored.dtype.kind in "iu" and stored.itemsize == 4):
            return stored.copy()
        wide = np.empty(stored.shape, np.dtype(compute))
        cast_into(wide, stored)
        return wide

    def _store(self, access: Access, values: np.ndarray) -> None:
        stored = np.empty(values.shape, access.dtype.numpy)
        if values.dtype == stored.dtype:
            stored[...] = values
        else:
            cast_into(stored, values)
        if str(access.dtype) == "tfloat32":
            round_tf32(stored, stored)
        self.write(access, stored)


class _Seen:
    """What `semantics` is given."""

    def __init__(self, machine: Oracle, instruction: Instruction) -> None:
        self._machine = machine
        self._instruction = instruction

    def scratch(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        return np.full(shape, 85, dtype)

    def state(self, name: str) -> np.ndarray:
        pmax = self._machine.program.target.pmax
        registers = self._machine.registers.setdefault(name, np.zeros(pmax, np.float32))
        first = next(a for o, a in self._instruction.accesses() if not o.is_output)
        start = first.start_partition if first.start_partition + first.partitions <= pmax else 0
        return registers[start : start + first.partitions].reshape(-1, 1)
