"""One instruction as a list of prebound calls on arrays.

The instruction says what it computes (`semantics`); this module hands it the arrays: windows on the blocks themselves
where type and layout allow, else scratch memory with a conversion before (inputs) or after (outputs). Scratch is
reused from instruction to instruction, so it stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from interpreter.arrange import Arrangement, Shown, arrangement
from interpreter.memory import Storage, byte_layout
from interpreter.moving import bind_moving, marks, store_calls
from interpreter.straight import straightened
from interpreter.workspace import Operands, Registers, Scratch
from nki.dtypes import caster, round_tf32
from nki.ir.control import Register
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access, Buffer, Shape

if TYPE_CHECKING:
    from interpreter.shadows import Shadows

Window = tuple[np.ndarray, str, tuple[int, ...], int]
"""An array on a tensor from outside: the array, the buffer's name, byte strides and byte offset."""

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Binder:
    """Makes calls of instructions. `storage_of` says where a buffer's bytes are.

    written: which elements accumulating instructions have written, for those that ask while running.
    before, after: transfers around the calls of the instruction being bound.
    marks: of its operands, which elements are transferred, if some may be dropped.
    """

    def __init__(
        self,
        storage_of: Callable[[Buffer], Storage],
        states: Callable[[str], np.ndarray],
        scratch: Scratch,
        shadows: Shadows | None = None,
        register: Callable[[Register], np.ndarray] | None = None,
    ) -> None:
        self.register = register or Registers().__getitem__
        self.written: Callable[[Access], np.ndarray] | None = None
        self.storage_of = storage_of
        self.shadows = shadows
        self.states = states
        self.scratch = scratch
        self.external: list[Window] = []
        self._arrays: list[tuple[Operand, Storage, np.ndarray, bool]] = []
        self._instruction: Instruction | None = None
        self._shared: dict[str, tuple[np.ndarray | None, bool]] = {}
        self._windows: dict[tuple[Any, ...], np.ndarray] = {}
        self.before: list[Call] = []
        self.after: list[Call] = []
        self.marks: dict[str, np.ndarray] = {}
        self.images = True

    def calls(self, instruction: Instruction) -> list[Call]:
        """The calls that execute one instruction. External windows among their arguments are listed in `external`."""
        self._shared = {}
        calls = self._bind(instruction, ())
        again = self._operands_to_buffer(calls)
        if again:
            calls = self._bind(instruction, again)
        self.scratch.done()
        return calls

    def _bind(self, instruction: Instruction, buffered: tuple[str, ...]) -> list[Call]:
        self.external = []
        self._arrays = []
        self.before = []
        self.after = []
        self._instruction = instruction
        self.marks = marks(instruction, self.scratch) if instruction.is_dynamic else {}
        arranged = arrangement(instruction, self._pitches(instruction))
        operands = Operands(instruction, self.scratch, self.states, arranged.rank, self.written)
        seen = operands.__dict__
        values = instruction.__dict__
        for spec in instruction.registers:
            value = values[spec.name]
            seen[spec.name] = self.register(value) if isinstance(value, Register) else value
        for operand in instruction.operands:
            value = values[operand.name]
            if operand.name in instruction.unbound:
                value = None
            elif type(value) is Access:
                value = self._array(operand, value, arranged, operand.name in buffered)
            elif operand.many:
                members = zip(operand.members(len(value)), value)
                value = tuple(self._array(o, access, arranged, o.name in buffered) for o, access in members)
            seen[operand.name] = value
        calls = [*instruction.semantics(operands)]
        if self.before or self.after:
            fixed = {id(window) for window, *_ in self.external}
            return straightened(self.before, calls, self.after, fixed)
        return calls

    def _array(self, operand: Operand, access: Access, arranged: Arrangement, buffered: bool) -> np.ndarray:
        """The array for one operand: its own window if it can be, else scratch with transfers around the calls."""
        storage = self.storage_of(access.buffer)
        shown = arranged.operands[operand.name]
        assert self._instruction is not None
        if access.dynamic is not None:
            array = bind_moving(self, self._instruction, operand, access, shown)
            self._arrays.append((operand, Storage(storage.base, 0, 0), array, False))
            return array
        direct = shown.direct and not buffered and operand.name not in self.marks
        if direct:
            array = self._window(storage, operand, access, shown)
        else:
            array = self._converted(storage, operand, access, arranged)
        self._arrays.append((operand, storage, array, direct))
        return array

    def _converted(
        self, storage: Storage, operand: Operand, access: Access, arranged: Arrangement
    ) -> np.ndarray:
        shown = arranged.operands[operand.name]
        array, fill = None, True
        if self.shadows is not None and not storage.external:
            array, fill = self.shadows.find_kept(operand, access, arranged)
            if array is not None:
                if fill:
                    window = self._window(storage, operand, access, None)
                    self.shadows.ahead += self._convert(storage, array.reshape(access.shape), window, True)
                return array
            array, fill = self._shared.get(operand.name) or self.shadows.find(operand, access, arranged)
            self._shared[operand.name] = (array, fill)
        if array is None:
            array = self.scratch.array(shown.shape, shown.compute)
        if not fill:
            return array
        window = self._window(storage, operand, access, None)
        if operand.direction != "out":
            self.before += self._convert(storage, array.reshape(access.shape), window, True)
        if operand.is_output:
            if shown.rounds:
                self.after.append((round_tf32, (array, array)))
            mark = self.marks.get(operand.name)
            if mark is not None:
                self.after += store_calls(self, access, array, mark)
            else:
                self.after += self._convert(storage, window, array.reshape(access.shape), False)
        return array

    def _pitches(self, instruction: Instruction) -> Shape:
        """Per operand, the bytes between its partitions if they do not lie as densely as the rows of its tensor (in a
        block laid out by address), else 0. Empty if that is nowhere."""
        if not self.images:
            return ()
        pitches = [0] * len(instruction.pairs)
        for index, (_, access) in enumerate(instruction.pairs):
            buffer = access.buffer
            pitch = self.storage_of(buffer).pitch
            if pitch != buffer.partition_bytes and buffer.memory.on_chip:
                pitches[index] = pitch
        return tuple(pitches) if any(pitches) else ()

    def _window(self, storage: Storage, operand: Operand, access: Access, shown: Shown | None) -> np.ndarray:
        """The window as an array, in the shape it is shown in or its own. Instructions that read (or write) one window
        share one array object: fewer objects keep the caches warm. Readers and writers do not share, so that the two
        sides of an instruction in place can be told apart."""
        shape: Shape
        strides: Shape | None
        if shown is not None and not self.images:
            shape, strides = shown.shape, shown.strides
            offset = storage.offset + access.offset * access.dtype.itemsize
        else:
            offset, strides = byte_layout(access, storage.pitch)
            offset += storage.offset
            shape = access.shape
            if shown is not None:
                shape, strides = shown.shape, shown.strides
        assert strides is not None
        if storage.external:
            window = np.ndarray(shape, access.dtype.numpy, storage.base, offset, strides)
            self.external.append((window, access.buffer.name, strides, offset))
            return window
        key = (id(storage.base), offset, shape, strides, access.dtype, operand.direction)
        found = self._windows.get(key)
        if found is None:
            found = self._windows[key] = np.ndarray(shape, access.dtype.numpy, storage.base, offset, strides)
        return found

    def _convert(self, storage: Storage, dst: np.ndarray, src: np.ndarray, reading: bool) -> list[Call]:
        """Calls that copy with conversion; an external window appears only in a plain copy, which can be rebound."""
        if dst.dtype == src.dtype:
            return [(np.copyto, (dst, src))]
        if not storage.external:
            return caster(dst, src)
        if reading:
            staging = self.scratch.array(src.shape, src.dtype)
            return [(np.copyto, (staging, src)), *caster(dst, staging)]
        staging = self.scratch.array(dst.shape, dst.dtype)
        return [*caster(staging, src), (np.copyto, (dst, staging))]

    def _operands_to_buffer(self, calls: list[Call]) -> tuple[str, ...]:
        """Operands that must not be bound directly: outputs that overlap an input that is still read after they are
        written, windows from outside that went into a call in a form that cannot be rebound, and outputs in the memory
        of an earlier one that is stored after the calls, as outputs are stored in order."""
        again: list[str] = []
        stored_after: list[np.ndarray] = []
        for operand, storage, array, direct in self._arrays:
            base = storage.base
            if storage.external and not _is_rebindable(array, calls):
                again.append(operand.name)
            if operand.direction == "in":
                continue
            if direct and (stored_after and any(after is base for after in stored_after)):
                again.append(operand.name)
            elif direct:
                for other, other_storage, read, _ in self._arrays:
                    if other_storage.base is base and other.direction == "in" and _hazard(array, read, calls):
                        again.append(operand.name)
                        break
            if operand.name in again or not direct:
                stored_after.append(base)
        return tuple(again)


def _is_rebindable(array: np.ndarray, calls: list[Call]) -> bool:
    """Whether the array is used, and only as itself: a derived view could not be pointed at another tensor."""
    used = False
    for _, arguments in calls:
        for argument in arguments:
            if argument is array:
                used = True
            elif isinstance(argument, np.ndarray) and np.may_share_memory(argument, array):
                return False
    return used


def _reads_first(function: Callable[..., Any], written: np.ndarray, read: np.ndarray) -> bool:
    """Whether a call behaves as if it read all its operands before it writes, as NumPy's own functions do."""
    if (
        function is np.copyto
    ):  # in one dimension NumPy only picks a direction, which is enough for equal steps
        return written.ndim > 1 or written.strides == read.strides
    return isinstance(function, np.ufunc) or getattr(function, "reads_first", False)


def _hazard(written: np.ndarray, read: np.ndarray, calls: list[Call]) -> bool:
    """Whether binding both arrays directly lets a call read what an earlier part of the instruction has written."""
    if not np.may_share_memory(written, read):
        return False
    first = True
    for function, arguments in calls:
        writes = reads = False
        for argument in arguments:
            if argument is written:
                writes = True
            elif argument is read:
                reads = True
            elif isinstance(argument, np.ndarray) and np.may_share_memory(argument, written):
                return True  # a derived view: which of the two it comes from cannot be told
        if not first and reads:
            return True
        if first and writes:
            first = False
            if reads and not _reads_first(function, written, read):
                return True
    return first
