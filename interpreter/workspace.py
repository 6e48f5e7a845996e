"""What a running core has besides memory: scratch arrays, registers, and what an instruction sees of its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from interpreter.memory import aligned_bytes
from nki.ir.control import Register
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Shape


class Scratch:
    """Host memory for intermediate arrays, reused by every instruction of a plan."""

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = {}
        self._used: list[tuple[int, np.ndarray]] = []

    def array(self, shape: Shape, dtype: np.dtype[Any]) -> np.ndarray:
        """An uninitialised contiguous array, valid until `done`."""
        count = 1
        for size in shape:
            count *= size
        nbytes = max(count * dtype.itemsize, 1)
        rounded = 1 << (nbytes - 1).bit_length()
        pool = self._free.get(rounded)
        raw = pool.pop() if pool else aligned_bytes(rounded)
        self._used.append((rounded, raw))
        return np.ndarray(shape, dtype, raw)

    def done(self) -> None:
        """The instruction is bound: its scratch may serve the next one."""
        for size, raw in self._used:
            self._free.setdefault(size, []).append(raw)
        self._used.clear()


class Operands:
    """What `semantics` sees: one attribute per operand, `scratch`, `state` and `written`."""

    def __init__(
        self,
        instruction: Instruction,
        scratch: Scratch,
        states: Callable[[str], np.ndarray],
        rank: int,
        written: Callable[[Access], np.ndarray] | None = None,
    ) -> None:
        self._instruction = instruction
        self._scratch = scratch
        self._states = states
        self._rank = rank
        self._written = written

    def scratch(self, shape: Shape, dtype: Any = np.float32) -> np.ndarray:
        """An uninitialised array that lives as long as this instruction's calls."""
        return self._scratch.array(tuple(shape), np.dtype(dtype))

    def written(self, access: Access) -> np.ndarray:
        """Which bytes of a window of `open_groups` accumulating instructions have written: one more axis, for the bytes
        of an element."""
        assert self._written is not None
        return self._written(access)

    def state(self, name: str, *, everywhere: bool = False) -> np.ndarray:
        """The engine's registers, those of the lanes that the instruction runs on or of all.

        One word per partition comes as a column that broadcasts against the operands, several as [lanes, words].
        """
        registers = self._states(name)
        if not everywhere:
            registers = registers[_lanes(self._instruction, len(registers))]
        lanes, words = registers.shape
        return registers if words > 1 else registers.reshape(lanes, *(1,) * (self._rank - 1))


def _lanes(instruction: Instruction, count: int) -> slice:
    """The lanes an instruction runs on: those of its first input, or of its output if it has no input."""
    accesses = sorted(instruction.accesses(), key=lambda pair: pair[0].is_output)
    first = accesses[0][1]
    start = first.start_partition if first.start_partition + first.partitions <= count else 0
    return slice(start, start + first.partitions)


class Registers:
    """The registers of one core: int32 arrays of one element, 0 at first."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def __getitem__(self, register: Register) -> np.ndarray:
        return self._arrays.setdefault(register.name, np.zeros(1, np.int32))

    def clear(self) -> None:
        """Set all to 0, as at the start of a run."""
        for array in self._arrays.values():
            array[0] = 0
