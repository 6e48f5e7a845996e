"""Which earlier instructions each instruction must wait for, found on addresses.

On chip, windows are compared by partition and byte, so tiles that the user laid over each other order each other, and a
tile that the allocator put where another one had been waits for that one's last accesses. In HBM every tensor has its
own addresses; tensors that nobody writes order nothing. Engine registers and explicit orders come last.
"""

from __future__ import annotations

from collections.abc import Iterable

from nki.ir.dependency import Dependency, DependencyKind
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Buffer, Program
from nki.passes.address_map import AddressMap, Piece
from nki.passes.windows import Rectangle, apart, rectangle

_RAW = DependencyKind.RAW
_WAR = DependencyKind.WAR
_WAW = DependencyKind.WAW
_REUSE = DependencyKind.REUSE
_ACCUMULATE = DependencyKind.ACCUMULATE

Found = dict[int, Dependency]
Operands = tuple[tuple[str, bool, bool], ...]
"""(name, read, written) of the operands of a class, those that are read first."""

_MOST_BLOCKS = 64
"""Column blocks of an HBM tensor that one window may span before the blocks are made wider."""


def dependencies(program: Program) -> list[list[list[Dependency]]]:
    """Per core and instruction, what it waits for: one record per earlier instruction, in order of operands."""
    return [_Finder(core).run() for core in program.cores]


class _Finder:
    """One walk through the instructions of a core."""

    def __init__(self, instructions: list[Instruction]) -> None:
        self.instructions = instructions
        self._operands: dict[type[Instruction], Operands] = {}
        self._queues: dict[tuple[type[Instruction], str], int] = {}
        self._maps: dict[object, AddressMap] = {}
        self._rectangles: dict[object, tuple[tuple[AddressMap, Rectangle], ...]] = {}
        self._layouts = hbm_layouts(instructions)
        self._states: dict[str, int] = {}

    def run(self) -> list[list[Dependency]]:
        """The whole core."""
        positions = {id(instruction): i for i, instruction in enumerate(self.instructions)}
        result = []
        for index, instruction in enumerate(self.instructions):
            found = self._of_operands(index, instruction)
            for state in instruction.states:
                if state in self._states:
                    on = self._states[state]
                    found.setdefault(on, Dependency(on, DependencyKind.STATE, state))
                self._states[state] = index
            for producer in instruction.after:
                on = positions.get(id(producer), index)
                if on < index:
                    found.setdefault(on, Dependency(on, DependencyKind.ORDER, ""))
            result.append(list(found.values()))
        return result

    def _of_operands(self, index: int, instruction: Instruction) -> Found:
        found: Found = {}
        cls = instruction.__class__
        operands = self._operands.get(cls)
        if operands is None:
            operands = self._operands[cls] = _operands(cls)
        values = instruction.__dict__
        writes = []
        for name, reads, written in operands:
            access = values.get(name)
            if access.__class__ is not Access:
                continue
            places = self._places(access)
            if not places:
                continue
            if reads and (not written or _is_read(instruction, access)):
                queue = self._queue(instruction)
                accumulates = written and instruction.accumulates
                for line, box in places:
                    pieces = line.pieces(box.low, box.high)
                    self._read(index, name, access.buffer, box, pieces, queue, accumulates, found)
            if written:
                writes.append((name, access, places))
        for name, access, places in writes:
            for line, box in places:
                self._write(index, name, access.buffer, box, line, instruction.accumulates, found)
        return found

    def _queue(self, instruction: Instruction) -> int:
        """A number for instructions that run one after the other: same class, same engine."""
        key = (instruction.__class__, instruction.engine.name)
        return self._queues.setdefault(key, len(self._queues))

    def _read(
        self,
        index: int,
        name: str,
        buffer: Buffer,
        box: Rectangle,
        pieces: list[Piece],
        queue: int,
        accumulates: bool,
        found: Found,
    ) -> None:
        first, last, lattice = box.first, box.last, box.lattice
        key = (first, last, lattice, queue)
        for piece in pieces:
            for low, high, other, on, owner, adds in piece.writes:
                if low >= last or first >= high or on in found:
                    continue
                if lattice and other and apart(lattice, other):
                    continue
                if owner is buffer or owner.placed or buffer.placed:
                    kind = _ACCUMULATE if accumulates and adds else _RAW
                    found[on] = Dependency(on, kind, name)
            piece.reads[key] = (index, buffer)

    def _write(
        self,
        index: int,
        name: str,
        buffer: Buffer,
        box: Rectangle,
        line: AddressMap,
        accumulates: bool,
        found: Found,
    ) -> None:
        first, last, lattice = box.first, box.last, box.lattice
        pieces = line.pieces(box.low, box.high)
        for piece in pieces:
            for (low, high, other, _), (on, owner) in piece.reads.items():
                if low >= last or first >= high or on in found or on == index:
                    continue
                if not (lattice and other and apart(lattice, other)):
                    found[on] = Dependency(on, _kind(_WAR, owner, buffer), name)
            for low, high, other, on, owner, _ in piece.writes:
                if low >= last or first >= high or on in found or on == index:
                    continue
                if not (lattice and other and apart(lattice, other)):
                    found[on] = Dependency(on, _kind(_WAW, owner, buffer), name)
        line.wrote(box, pieces, (first, last, lattice, index, buffer, accumulates))

    def _places(self, access: Access) -> tuple[tuple[AddressMap, Rectangle], ...]:
        """The address lines that a window touches and where; nothing for a tensor that is only read."""
        buffer = access.buffer
        address = buffer.address
        where = address or id(buffer)
        key = (where, buffer.row, buffer.memory.value, access.offset, access.shape, access.strides, access.dtype)
        places = self._rectangles.get(key)
        if places is None:
            places = self._rectangles[key] = self._find_places(access, buffer, address)
        return places

    def _find_places(
        self, access: Access, buffer: Buffer, address: tuple[int, int] | None
    ) -> tuple[tuple[AddressMap, Rectangle], ...]:
        if not access.size:
            return ()
        if buffer.memory.on_chip:
            line = buffer.memory.value if address else id(buffer)
            box = rectangle(access, max(1, buffer.partition_bytes), address or (0, 0))
            return ((self._line(line), box),)
        layout = self._layouts.get(id(buffer))
        if layout is None:
            return ()
        pitch, width = layout
        box = rectangle(access, pitch)
        if not width:
            return ((self._line(id(buffer)), box),)
        turned = Rectangle(box.first, box.last, box.low, box.high, None, box.covers and box.lattice is None)
        blocks = range(box.low // width, -(-box.high // width))
        return tuple((self._line((id(buffer), block)), _clipped(turned, block * width, width)) for block in blocks)

    def _line(self, key: object) -> AddressMap:
        line = self._maps.get(key)
        if line is None:
            line = self._maps[key] = AddressMap()
        return line


def _operands(cls: type[Instruction]) -> Operands:
    ordered = sorted(cls.operands, key=lambda operand: operand.direction == "out")
    return tuple((o.name, o.direction != "out", o.direction != "in") for o in ordered)


def _is_read(instruction: Instruction, access: Access) -> bool:
    """Whether an operand that is written, and may be read, is read by this very instruction."""
    if type(instruction).reads is Instruction.reads:
        return True
    return any(read is access for read in instruction.reads())


def _kind(plain: DependencyKind, owner: Buffer, buffer: Buffer) -> DependencyKind:
    return plain if owner is buffer or owner.placed or buffer.placed else _REUSE


def _clipped(box: Rectangle, start: int, width: int) -> Rectangle:
    return box._replace(first=max(box.first, start), last=min(box.last, start + width))


def hbm_layouts(instructions: Iterable[Instruction]) -> dict[int, tuple[int, int]]:
    """How to cut each HBM tensor that is written, by id: (bytes in a row, bytes in a block of columns or 0).

    A tensor whose windows are all contiguous is one row.
    """
    windows: dict[int, list[Access]] = {}
    written: set[int] = set()
    reach: dict[type[Instruction], list[tuple[str, bool]]] = {}
    for instruction in instructions:
        cls = type(instruction)
        names = reach.get(cls)
        if names is None:
            names = [(o.name, o.is_output) for o in cls.operands if any(m.is_hbm for m in o.memories)]
            reach[cls] = names
        for name, output in names:
            access = instruction.__dict__.get(name)
            if isinstance(access, Access) and access.memory.is_hbm:
                windows.setdefault(id(access.buffer), []).append(access)
                if output:
                    written.add(id(access.buffer))
    return {key: _layout(accesses) for key, accesses in windows.items() if key in written}


def _layout(accesses: list[Access]) -> tuple[int, int]:
    whole = max(1, accesses[0].buffer.nbytes)
    seen = {(a.offset % max(1, a.row), a.shape, a.strides, a.dtype): a for a in accesses}
    lattices = [rectangle(a, whole).lattice for a in seen.values()]
    blocked = [lattice for lattice in lattices if lattice]
    if not blocked:
        return whole, 0
    pitch = max(step for step, _, _ in blocked)
    run = max(run for step, run, _ in blocked if step == pitch)
    return pitch, max(run, -(-pitch // _MOST_BLOCKS))
