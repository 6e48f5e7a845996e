"""One instruction as a list of prebound calls on arrays.

The instruction says what it computes (`semantics`); this module hands it the arrays: windows on the blocks themselves
where type and layout allow, else scratch memory with a conversion before (inputs) or after (outputs). Scratch is
reused from instruction to instruction, so it stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interpreter.memory import Storage, aligned_bytes, byte_layout
from interpreter.views import common_view, restride
from nki import dtypes
from nki.dtypes import caster, round_tf32
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access, Buffer, Shape

if TYPE_CHECKING:
    from interpreter.shadows import Shadows

Window = tuple[np.ndarray, str, tuple[int, ...], int]
"""An array on a tensor from outside: the array, the buffer's name, byte strides and byte offset."""

Call = tuple[Callable[..., Any], tuple[Any, ...]]

_COMPUTE = {"float32": np.dtype(np.float32), "int32": np.dtype(np.int32)}


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
    """What `semantics` sees: one attribute per operand, `scratch` and `state`."""

    def __init__(
        self,
        instruction: Instruction,
        scratch: Scratch,
        states: Callable[[str, Instruction, int], np.ndarray],
        rank: int,
    ) -> None:
        self._instruction = instruction
        self._scratch = scratch
        self._states = states
        self._rank = rank

    def scratch(self, shape: Shape, dtype: Any = np.float32) -> np.ndarray:
        """An uninitialised array that lives as long as this instruction's calls."""
        return self._scratch.array(tuple(shape), np.dtype(dtype))

    def state(self, name: str) -> np.ndarray:
        """The engine's registers as a float32 column that broadcasts against the operands."""
        return self._states(name, self._instruction, self._rank)


class Binder:
    """Makes calls of instructions. `storage_of` says where a buffer's bytes are."""

    def __init__(
        self,
        storage_of: Callable[[Buffer], Storage],
        states: Callable[[str, Instruction, int], np.ndarray],
        scratch: Scratch,
        shadows: Shadows | None = None,
    ) -> None:
        self.storage_of = storage_of
        self.shadows = shadows
        self.states = states
        self.scratch = scratch
        self.external: list[Window] = []
        self._arrays: list[tuple[Operand, Access, Storage, np.ndarray]] = []
        self._shared: dict[str, tuple[np.ndarray | None, bool]] = {}
        self._before: list[Call] = []
        self._after: list[Call] = []

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
        self._before = []
        self._after = []
        arranged = arrangement(instruction)
        operands = Operands(instruction, self.scratch, self.states, arranged.rank)
        seen = operands.__dict__
        values = instruction.__dict__
        for operand in instruction.operands:
            value = values[operand.name]
            if type(value) is Access:
                value = self._array(operand, value, arranged, operand.name in buffered)
            seen[operand.name] = value
        calls = [*instruction.semantics(operands)]
        if self._before or self._after:
            return self._before + calls + self._after
        return calls

    def _array(self, operand: Operand, access: Access, arranged: Arrangement, buffered: bool) -> np.ndarray:
        """The array for one operand: its own window if it can be, else scratch with transfers around the calls."""
        storage = self.storage_of(access.buffer)
        shown = arranged.operands[operand.name]
        if shown.direct and not buffered:
            array = self._window(storage, access, shown.shape, shown.strides, shown.byte_strides)
        else:
            array = self._converted(storage, operand, access, arranged)
        self._arrays.append((operand, access, storage, array))
        return array

    def _converted(self, storage: Storage, operand: Operand, access: Access, arranged: Arrangement) -> np.ndarray:
        shown = arranged.operands[operand.name]
        array, fill = None, True
        if self.shadows is not None and not storage.external:
            array, fill = self._shared.get(operand.name) or self.shadows.find(operand, access, arranged)
            self._shared[operand.name] = (array, fill)
        if array is None:
            array = self.scratch.array(shown.shape, shown.compute)
        if not fill:
            return array
        window = self._window(storage, access, access.shape, access.strides, None)
        if operand.direction != "out":
            self._before += self._convert(storage, array.reshape(access.shape), window, True)
        if operand.is_output:
            if access.dtype is dtypes.tfloat32 and shown.compute == np.float32:
                self._after.append((round_tf32, (array, array)))
            self._after += self._convert(storage, window, array.reshape(access.shape), False)
        return array

    def _window(
        self, storage: Storage, access: Access, shape: Shape, strides: Shape | None, byte_strides: Shape | None
    ) -> np.ndarray:
        buffer = access.buffer
        assert strides is not None
        if byte_strides is not None and (storage.pitch == buffer.partition_bytes or not buffer.memory.on_chip):
            offset = access.offset * access.dtype.itemsize
        else:
            seen = Access(buffer, access.dtype, access.offset, shape, strides)
            offset, byte_strides = byte_layout(seen, storage.pitch)
        offset += storage.offset
        window = np.ndarray(shape, access.dtype.numpy, storage.base, offset, byte_strides)
        if storage.external:
            self.external.append((window, buffer.name, byte_strides, offset))
        return window

    def _convert(self, storage: Storage, dst: np.ndarray, src: np.ndarray, reading: bool) -> list[Call]:
        """Calls that copy with conversion; an external window appears only in a plain copy, so that it can be rebound."""
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
        written, and windows from outside that went into a call in a form that cannot be rebound."""
        again: list[str] = []
        for operand, _, storage, array in self._arrays:
            if storage.external and not _is_rebindable(array, calls):
                again.append(operand.name)
            if not operand.is_output:
                continue
            for other, _, other_storage, read in self._arrays:
                if not other.is_output and other_storage.base is storage.base and _hazard(array, read, calls):
                    again.append(operand.name)
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


def _hazard(written: np.ndarray, read: np.ndarray, calls: list[Call]) -> bool:
    """Whether binding both arrays directly lets a call read what an earlier part of the instruction has written."""
    first = True
    for function, arguments in calls:
        writes = reads = False
        for argument in arguments:
            if argument is written:
                writes = True
            elif argument is read:
                reads = True
        if not first and reads:
            return np.may_share_memory(written, read)
        if first and writes:
            first = False
            # NumPy's own functions detect overlapping operands and behave as if they read everything first.
            if reads and not (isinstance(function, np.ufunc) or function is np.copyto):
                return np.may_share_memory(written, read)
    return first and np.may_share_memory(written, read)


@dataclass(frozen=True)
class Shown:
    """How one operand is shown to the semantics.

    shape, strides: in elements; `strides` is `None` if the window cannot be shown in that shape without a copy.
    byte_strides: the same in bytes where rows lie as densely as the tensor's own.
    compute: the array type; direct: whether the window itself can be handed out.
    """

    shape: Shape
    strides: Shape | None
    byte_strides: Shape | None
    compute: np.dtype[Any]
    direct: bool


@dataclass(frozen=True)
class Arrangement:
    """How all operands of an instruction are shown, and the rank of the elementwise shape."""

    operands: dict[str, Shown]
    rank: int
    converts: bool


_arrangements: dict[tuple[Any, ...], Arrangement] = {}
_REMEMBERED_MOST = 100_000


def arrangement(instruction: Instruction) -> Arrangement:
    """Shapes, strides and types of the arrays of an instruction; the same for all instructions of one `key()`."""
    key = instruction.key()
    found = _arrangements.get(key)
    if found is None:
        shapes, strides, rank = _declared(instruction) if instruction.layout == "declared" else _elementwise(instruction)
        shown = {o.name: _show(instruction, o, a, shapes[o.name], strides[o.name]) for o, a in instruction.pairs}
        converts = any(not s.direct for s in shown.values())
        found = Arrangement(shown, rank, converts)
        if len(_arrangements) > _REMEMBERED_MOST:
            _arrangements.clear()
        _arrangements[key] = found
    return found


def _show(instruction: Instruction, operand: Operand, access: Access, shape: Shape, strides: Shape | None) -> Shown:
    compute = instruction.compute_of(operand)
    stored = access.dtype.numpy
    wanted = stored if compute == "raw" else _COMPUTE[compute]
    if compute == "int32" and stored.kind in "iu" and stored.itemsize == wanted.itemsize:
        wanted = stored
    rounds = access.dtype is dtypes.tfloat32 and operand.is_output and compute != "raw"
    direct = strides is not None and wanted == stored and not rounds
    if operand.is_output and any(n > 1 and step == 0 for n, step in zip(access.shape, access.strides)):
        direct = False  # elements of a repeated destination must not meet before the last one is stored
    size = access.dtype.itemsize
    byte_strides = None if strides is None else tuple(stride * size for stride in strides)
    return Shown(shape, strides, byte_strides, wanted, direct)


def _declared(instruction: Instruction) -> tuple[dict[str, Shape], dict[str, Shape | None], int]:
    wanted = instruction.array_shapes()
    shapes: dict[str, Shape] = {}
    strides: dict[str, Shape | None] = {}
    for operand, access in instruction.accesses():
        shape = wanted.get(operand.name, access.shape)
        shapes[operand.name] = shape
        strides[operand.name] = restride(access.shape, access.strides, shape)
    return shapes, strides, 2


def _elementwise(instruction: Instruction) -> tuple[dict[str, Shape], dict[str, Shape | None], int]:
    shapes: dict[str, Shape] = {}
    strides: dict[str, Shape | None] = {}
    accesses = list(instruction.accesses())
    main = [(o, a) for o, a in accesses if o.dims[-1] not in ("1", "*")]
    rank = 2
    if main:
        flat = len(main[0][0].dims) == 1
        shape, views = common_view(tuple((a.shape, a.strides) for _, a in main), not flat)
        rank = len(shape)
        for (operand, _), seen in zip(main, views):
            shapes[operand.name] = shape
            strides[operand.name] = seen
    for operand, access in accesses:
        if operand.name in shapes:
            continue
        shape = access.shape
        if operand.dims[-1] == "1":
            shape = (access.partitions, *(1,) * (rank - 1))
        shapes[operand.name] = shape
        strides[operand.name] = restride(access.shape, access.strides, shape)
    return shapes, strides, rank
