"""Which earlier instructions each instruction must wait for, found on addresses.

On chip, windows are compared by partition and byte, so tiles that the user laid over each other order each other, and a
tile that the allocator put where another one had been waits for that one's last accesses. In HBM every tensor has its
own addresses; tensors that nobody writes order nothing. Engine registers and explicit orders come last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from nki.ir.control import Register
from nki.ir.dependency import Dependency, DependencyKind
from nki.ir.instruction import Instruction
from nki.ir.operands import HBM, Operand
from nki.ir.order import Test
from nki.ir.program import Access, Buffer, Program, flatten
from nki.passes.address_map import AddressMap
from nki.passes.windows import Rectangle, apart, rectangle

_RAW = DependencyKind.RAW
_WAR = DependencyKind.WAR
_WAW = DependencyKind.WAW
_REUSE = DependencyKind.REUSE
_ACCUMULATE = DependencyKind.ACCUMULATE

Found = dict[int, Dependency]
Places = tuple[tuple[AddressMap, Rectangle], ...]
Operands = tuple[tuple[str, bool, bool], ...]
"""(name, read, written) of the operands of a class, those that are read first."""

_MOST_BLOCKS = 64
"""Column blocks of an HBM tensor that one window may span before the blocks are made wider."""


def dependencies(program: Program, tests: Sequence[Sequence[Test]] = ()) -> list[list[list[Dependency]]]:
    """Per core and instruction, what it waits for: one record per earlier instruction, reads first.

    The program has its loops written out: an instruction of a body occurs once for every pass. tests: per core, where
    loops on the device decided by a register, which all later instructions wait for.
    """
    tests = tests or [()] * len(program.cores)
    return [_Finder(list(flatten(core))).run(where) for core, where in zip(program.cores, tests)]


class _Finder:
    """One walk through the instructions of a core."""

    def __init__(self, instructions: list[Instruction]) -> None:
        self.instructions = instructions
        self._operands: dict[type[Instruction], Operands] = {}
        self._maps: dict[object, AddressMap] = {}
        self._rectangles: dict[object, Places] = {}
        self._layouts = hbm_layouts(instructions)
        self._states: dict[str, int] = {}
        self._registers: dict[Register, int] = {}
        self._decisions: dict[int, Dependency] = {}

    def run(self, tests: Sequence[Test] = ()) -> list[list[Dependency]]:
        """The whole core."""
        positions: dict[int, int] = {}  # the latest time it ran: in this pass of a loop, or before the loop
        states = self._states
        ahead = deque(tests)
        result = []
        for index, instruction in enumerate(self.instructions):
            while ahead and ahead[0].at <= index:
                self._decide(ahead.popleft())
            found: Found = {}
            self._operands_of(index, instruction, found)
            if instruction.registers or instruction.is_dynamic:
                self._registers_of(index, instruction, found)
            for on, decision in self._decisions.items():
                found.setdefault(on, decision)
            for state in instruction.states:
                if state in states and states[state] not in found:
                    found[states[state]] = Dependency(states[state], DependencyKind.STATE, state)
                states[state] = index
            for producer in instruction.after:
                on = positions.get(id(producer), index)
                if on < index and on not in found:
                    found[on] = Dependency(on, DependencyKind.ORDER, "")
            positions[id(instruction)] = index
            result.append(list(found.values()))
        return result

    def _registers_of(self, index: int, instruction: Instruction, found: Found) -> None:
        """A register is read when an instruction is issued; every sequencer has its own, so writers wait for nobody."""
        for register in instruction.registers_read():
            on = self._registers.get(register)
            if on is not None:
                found.setdefault(on, Dependency(on, _RAW, f"${register.name}"))
        for register in instruction.registers_written():
            self._registers[register] = index

    def _decide(self, test: Test) -> None:
        """A loop looks at registers: nothing behind it can start before their values are known. What has waited for
        the last decision has also waited for those that were known when its register was written."""
        for register in test.registers():
            on = self._registers.get(register)
            if on is not None:
                if all(on > other for other in self._decisions):
                    self._decisions.clear()
                self._decisions[on] = Dependency(on, _RAW, f"${register.name}")

    def _operands_of(self, index: int, instruction: Instruction, found: Found) -> None:
        """Reads first: an instruction may overwrite what it reads."""
        cls = instruction.__class__
        operands = self._operands.get(cls)
        if operands is None:
            operands = self._operands[cls] = _operands(cls.operands, cls.unbound)
        values = instruction.__dict__
        if cls.lists:
            operands = _operands(operand for operand, _ in instruction.pairs)
            values = {operand.name: access for operand, access in instruction.pairs}
        queue = (cls, id(instruction.engine))
        adds = instruction.accumulates
        for window in instruction.index_windows() if instruction.is_dynamic else ():
            for line, box in self._places(window):
                self._read(index, "index", window.buffer, line, box, queue, False, found)
        for name, reads, written in operands:
            access = values.get(name)
            if access.__class__ is Access and reads and (not written or _is_read(instruction, access)):
                for line, box in self._places(access):
                    self._read(index, name, access.buffer, line, box, queue, written and adds, found)
        for name, _, written in operands:
            if written:
                access = values.get(name)
                if access.__class__ is Access:
                    for line, box in self._places(access):
                        self._write(index, name, access.buffer, line, box, adds, found)

    def _read(
        self,
        index: int,
        name: str,
        buffer: Buffer,
        line: AddressMap,
        box: Rectangle,
        queue: tuple[object, int],
        accumulates: bool,
        found: Found,
    ) -> None:
        low, high, first, last, lattice, _ = box
        key = (first, last, lattice, queue)
        for piece in line.pieces(low, high):
            for start, end, other, on, owner, adds in piece.writes:
                if start >= last or first >= end or on in found:
                    continue
                if lattice is not None and apart(lattice, other):
                    continue
                if owner is buffer or owner.placed or buffer.placed:
                    found[on] = Dependency(on, _ACCUMULATE if accumulates and adds else _RAW, name)
            piece.reads[key] = (index, buffer)

    def _write(
        self,
        index: int,
        name: str,
        buffer: Buffer,
        line: AddressMap,
        box: Rectangle,
        accumulates: bool,
        found: Found,
    ) -> None:
        low, high, first, last, lattice, covers = box
        pieces = line.pieces(low, high)
        hides = covers and lattice is None and len(pieces) == 1
        for piece in pieces:
            for (start, end, other, _), (on, owner) in piece.reads.items():
                hides = hides and first <= start and end <= last
                if start >= last or first >= end or on in found or on == index:
                    continue
                if lattice is None or not apart(lattice, other):
                    found[on] = Dependency(on, _kind(_WAR, owner, buffer), name)
            for start, end, other, on, owner, _ in piece.writes:
                hides = hides and first <= start and end <= last
                if start >= last or first >= end or on in found or on == index:
                    continue
                if lattice is None or not apart(lattice, other):
                    found[on] = Dependency(on, _kind(_WAW, owner, buffer), name)
        write = (first, last, lattice, index, buffer, accumulates)
        if hides:  # the usual case of `wrote`
            pieces[0].writes = [write]
            pieces[0].reads.clear()
        else:
            line.wrote(box, pieces, write)

    def _places(self, access: Access) -> Places:
        """The address lines that a window touches and where; nothing for a tensor that is only read."""
        if access.dynamic is not None:  # anywhere it may be, and no part of it for certain
            reached = self._places(access.reachable())
            return tuple((line, box._replace(lattice=None, covers=False)) for line, box in reached)
        buffer = access.buffer
        where = buffer.address or id(buffer)
        key = (
            where,
            id(buffer.memory),
            buffer.row,
            access.offset,
            access.shape,
            access.strides,
            access.dtype,
        )
        places = self._rectangles.get(key)
        if places is None:
            places = self._rectangles[key] = self._find_places(access, buffer)
        return places

    def _find_places(self, access: Access, buffer: Buffer) -> Places:
        if not access.size:
            return ()
        address = buffer.address
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
        return tuple(
            (self._line((id(buffer), block)), _clipped(turned, block * width, width)) for block in blocks
        )

    def _line(self, key: object) -> AddressMap:
        line = self._maps.get(key)
        if line is None:
            line = self._maps[key] = AddressMap()
        return line


def _operands(declared: Iterable[Operand], unbound: Sequence[str] = ()) -> Operands:
    """`unbound` ones only name a tensor: what was written to it is to be seen by whatever reads it afterwards."""
    ordered = sorted(declared, key=lambda operand: ("in", "inout", "out").index(operand.direction))
    return tuple((o.name, o.direction != "out", o.direction != "in" or o.name in unbound) for o in ordered)


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
    reach: dict[type[Instruction], bool] = {}
    for instruction in instructions:
        cls = type(instruction)
        if cls not in reach:
            reach[cls] = any(memory.is_hbm for operand in cls.operands for memory in operand.memories)
        for operand, access in instruction.pairs if reach[cls] else ():
            if access.buffer.memory in HBM:
                windows.setdefault(id(access.buffer), []).append(access)
                if operand.is_output:
                    written.add(id(access.buffer))
    return {key: _layout(accesses) for key, accesses in windows.items() if key in written}


def _layout(accesses: list[Access]) -> tuple[int, int]:
    whole = max(1, accesses[0].buffer.nbytes)
    seen = {(a.shape, a.strides, a.dtype): a for a in accesses}
    lattices = [rectangle(a, whole).lattice for a in seen.values()]
    blocked = [lattice for lattice in lattices if lattice]
    if not blocked:
        return whole, 0
    pitch = max(step for step, _, _ in blocked)
    run = max(run for step, run, _ in blocked if step == pitch)
    return pitch, max(run, -(-pitch // _MOST_BLOCKS))
