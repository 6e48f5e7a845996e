"""Widened copies of narrow tiles, kept while they stay true.

A bfloat16 tile that several instructions read in float32 is widened once and not for every reader: the program is flat,
so it is known beforehand how often a window is read before its tile is written again. A tile that a loop on the device
only reads is widened before the loop, once for all its passes. The copy has exactly the values that a fresh conversion
would give, so nothing can change but time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from interpreter.arrange import Arrangement, Shown, arrangement
from interpreter.memory import aligned_bytes
from nki import dtypes
from nki.ir.control import Loop
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.order import Line
from nki.ir.program import Access

Key = tuple[Any, ...]

LOOPS = 1 << 28
"""Bytes of copies that are kept for loops: as much as ten SBUFs."""


def _all_float32(line: Line) -> bool:
    """Whether nothing is ever widened: the common case, in which there is nothing to count."""
    float32 = dtypes.float32
    return all(access.dtype is float32 for i in line.instructions for _, access in i.pairs)


def _written_in(line: Line) -> dict[Loop, set[str]]:
    """Tensors that are written inside each loop, or inside a loop in it."""
    written: dict[Loop, set[str]] = {}
    for instruction, around in zip(line.instructions, line.around):
        for loop in around:
            written.setdefault(loop, set()).update(access.buffer.name for access in instruction.writes())
    return written


class Shadows:
    """Counts the readers of each window ahead of time, then hands out shared copies during planning.

    loop: the innermost loop that is being planned. Copies made in its body are not shared across its border: the body
    may never run. ahead: calls that fill copies before that loop begins, for the planner to take.
    """

    def __init__(self, line: Line, excluded: set[str]) -> None:
        self.loop: Loop | None = None
        self.ahead: list[tuple[Any, tuple[Any, ...]]] = []
        plain = _all_float32(line)
        self._written = {} if plain else _written_in(line)
        self._parents = {a: b for around in line.around for a, b in zip(around, (None, *around))}
        self._kept: dict[Key, np.ndarray] = {}
        self._room = LOOPS
        self._idle = False
        self._versions: Counter[str] = Counter()
        self._excluded = excluded
        self._arrays: dict[Key, tuple[np.ndarray, int, np.ndarray]] = {}
        self._free: dict[int, list[np.ndarray]] = {}
        self._finished: list[Key] = []
        self._readers = Counter() if plain else self._count(line)
        self._idle = not self._readers and not self._written

    def _count(self, line: Line) -> Counter[Key]:
        readers: Counter[Key] = Counter()
        for instruction, around in zip(line.instructions, line.around):
            self.loop = around[-1] if around else None
            arranged = arrangement(instruction)
            if arranged.converts:
                for operand, access in instruction.pairs:
                    key = self._key(operand, access, arranged)
                    if key is not None:
                        readers[key] += 1
            self.wrote(instruction)
        self._versions.clear()
        self.loop = None
        return readers

    def _key(self, operand: Operand, access: Access, arranged: Arrangement) -> Key | None:
        shown = arranged.operands[operand.name]
        name = access.buffer.name
        if shown.direct or operand.is_output or name in self._excluded or shown.compute == access.dtype.numpy:
            return None
        if access.dynamic is not None:
            return None
        place = (access.offset, access.shape, access.strides, access.dtype)
        return (self.loop, name, self._versions[name], place, shown.shape, shown.compute.str)

    def find_kept(
        self, operand: Operand, access: Access, arranged: Arrangement
    ) -> tuple[np.ndarray | None, bool]:
        """An array that is filled before the loop and whether that is still to be done; `None` if the loop writes the
        tile, or if there is no loop. Loops next to each other share one, if nothing between them writes the tile."""
        loop, shown = self.loop, arranged.operands[operand.name]
        if loop is None or access.buffer.name in self._written.get(loop, ()):
            return None, True
        inside = self._key(operand, access, arranged)
        if inside is None:
            return None, True
        key = (self._parents.get(loop), *inside[1:])
        held = self._kept.get(key)
        if held is not None:
            return held, False
        nbytes = int(np.prod(shown.shape)) * shown.compute.itemsize
        if nbytes > self._room:
            return None, True
        self._room -= nbytes
        array = self._kept[key] = np.ndarray(shown.shape, shown.compute, aligned_bytes(nbytes))
        return array, True

    def find(self, operand: Operand, access: Access, arranged: Arrangement) -> tuple[np.ndarray | None, bool]:
        """A shared array for a reader and whether it must still be filled; `None` if the window has one reader only."""
        key = self._key(operand, access, arranged)
        if key is None or self._readers[key] < 1:
            return None, True
        held = self._arrays.get(key)
        left = self._readers[key] = self._readers[key] - 1
        if held is None:
            if left == 0:
                return None, True
            array, size, raw = self._allocate(arranged.operands[operand.name])
            self._arrays[key] = (array, size, raw)
            return array, True
        if left == 0:
            self._finished.append(key)
        return held[0], False

    def _allocate(self, shown: Shown) -> tuple[np.ndarray, int, np.ndarray]:
        nbytes = int(np.prod(shown.shape)) * shown.compute.itemsize
        pool = self._free.get(nbytes)
        raw = pool.pop() if pool else aligned_bytes(nbytes)
        return np.ndarray(shown.shape, shown.compute, raw), nbytes, raw

    def wrote(self, instruction: Instruction) -> None:
        """An instruction has been planned: copies of what it wrote are no longer true, finished ones are recycled."""
        if self._idle:
            return
        for operand, access in instruction.pairs:
            if operand.is_output:
                self._versions[access.buffer.name] += 1
        for key in self._finished:
            _, size, raw = self._arrays.pop(key)
            self._free.setdefault(size, []).append(raw)
        self._finished.clear()
