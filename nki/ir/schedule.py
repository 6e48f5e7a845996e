"""Explicit orders: edges by name (`kernel.with_schedule`), where they may stand, and a program that obeys them.

An edge says that its consumer runs after its producer; it changes time, never values. Where the producer was staged
later, it is moved ahead together with what it needs (semantics rule 149; how-to-scheduling-apis.rst).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

from nki import errors
from nki.ir.control import Loop, Node, Register
from nki.ir.instruction import Instruction
from nki.ir.program import Buffer, Program, flatten
from nki.span import capture

Edges = Sequence[tuple[str, tuple[str, ...]]]
"""(consumer, producers) by the names of instructions."""

FIXED_ORDER = "fixed_order"


def as_edges(edges: object) -> Edges:
    """What `with_schedule` was given, in one form: a producer may be a name or a list of names."""
    found = []
    for edge in edges if isinstance(edges, Iterable) else (edges,):
        consumer, producers = edge if isinstance(edge, (tuple, list)) and len(edge) == 2 else (None, ())
        names = tuple(producers) if isinstance(producers, (tuple, list)) else (producers,)
        if not isinstance(consumer, str) or not all(isinstance(name, str) for name in names):
            raise errors.ArgumentError(
                "with_schedule takes pairs of names",
                found=f"{edge!r:.80}",
                allowed="[(consumer, producer), (consumer, [producer, ...]), ...]",
                remedy="name instructions with name= and pass their names: kernel.with_schedule([('b', 'a')])",
                span=capture(3),
            )
        found.append((consumer, names))
    return tuple(found)


def check_nesting(consumer: Instruction, producer: Instruction) -> None:
    """An edge leads to an instruction of the same loop body, or from one around it: nothing else always happens."""
    if consumer.loops[: len(producer.loops)] == producer.loops:
        return
    raise errors.KernelError(
        f"{_called(consumer)} cannot wait for {_called(producer)}, which is in the body of another loop on the device",
        found=f"{_called(producer)} at {producer.span}",
        allowed="a producer in the same loop body, or outside of the loops around the consumer",
        remedy="leave the edge out: data dependencies across loops are kept anyway",
    )


def add_edges(program: Program, edges: Edges) -> None:
    """Make named instructions wait for others."""
    if not edges:
        return
    program.flags.add(FIXED_ORDER)
    named = [_by_name(nodes) for nodes in program.cores]
    known = dict.fromkeys(chain.from_iterable(named))
    for consumer, producers in edges:
        for name in (consumer, *producers):
            if name not in known:
                raise _unknown(name, list(known), program)
        for names in named:
            for producer in producers if consumer in names else ():
                if producer in names:
                    _add_edge(names, consumer, producer)


def _add_edge(names: dict[str, list[Instruction]], consumer: str, producer: str) -> None:
    for name in (consumer, producer):
        if len(names[name]) > 1:
            raise errors.ArgumentError(
                f"with_schedule: {len(names[name])} instructions are called `{name}`",
                operand=name,
                found=", ".join(str(instruction.span) for instruction in names[name][:4]),
                allowed="one instruction of each name that a schedule mentions",
                remedy=f"number them: name=f'{name}{{i}}'",
                span=names[name][-1].span,
            )
    after, before = names[consumer][0], names[producer][0]
    try:
        check_nesting(after, before)
    except errors.NkiError as error:
        raise error.at(after.span) from None
    if before not in after.after:
        after.after += (before,)


def _by_name(nodes: list[Node]) -> dict[str, list[Instruction]]:
    names: dict[str, list[Instruction]] = {}
    for instruction in flatten(nodes):
        if instruction.name:
            names.setdefault(instruction.name, []).append(instruction)
    return names


def _unknown(name: str, known: list[str], program: Program) -> errors.NkiError:
    close = difflib.get_close_matches(name, known, n=1)
    return errors.ArgumentError(
        f"with_schedule: no instruction of {program.name} is called `{name}`",
        operand=name,
        found=repr(name),
        allowed=", ".join(map(repr, known)) or "none: no instruction has a name",
        remedy=f"did you mean {close[0]!r}?"
        if close
        else "name the instruction: nisa.tensor_copy(..., name='...')",
        span=program.span,
    )


def settle_order(program: Program) -> None:
    """Move instructions so that every edge points backwards."""
    if FIXED_ORDER in program.flags:
        for nodes in program.cores:
            _settle(nodes)


def _settle(nodes: list[Node]) -> None:
    late = _late(nodes)
    while late is not None:
        _move_ahead(nodes, *late)
        late = _late(nodes)
    for node in nodes:
        if isinstance(node, Loop):
            _settle(node.body)


def _late(nodes: list[Node]) -> tuple[int, int] | None:
    """The positions of a node and of something it waits for that stands behind it."""
    positions = {id(node): position for position, node in enumerate(nodes)}
    for position, node in enumerate(nodes):
        for instruction in flatten([node]):
            for producer in instruction.after:
                if positions.get(id(producer), -1) > position:
                    return position, positions[id(producer)]
    return None


def _move_ahead(nodes: list[Node], position: int, late: int) -> None:
    """Put node `late`, and what it needs of the nodes between, in front of node `position`."""
    moved = [_Touches(nodes[late])]
    places = [late]
    for place in range(late - 1, position - 1, -1):
        here = _Touches(nodes[place])
        if any(other.needs(here) for other in moved):
            moved.append(here)
            places.append(place)
    if position in places:
        raise _cycle(nodes[position], nodes[late])
    ahead = [nodes[place] for place in sorted(places)]
    rest = [nodes[place] for place in range(position, late + 1) if place not in places]
    nodes[position : late + 1] = ahead + rest


class _Touches:
    """What one node reads and writes as a whole: tensors, registers of the sequencer and of the engines, the screen."""

    def __init__(self, node: Node) -> None:
        self.instructions = list(flatten([node]))
        reads = chain.from_iterable(i.reads() for i in self.instructions)
        writes = chain.from_iterable(i.writes() for i in self.instructions)
        self.read = {access.buffer.name: access.buffer for access in reads}
        self.written = {access.buffer.name: access.buffer for access in writes}
        self.kept = {state for i in self.instructions for state in (*i.states, *i.effects)}
        loops = [node] if isinstance(node, Loop) else []
        for loop in loops:
            loops += [inner for inner in loop.body if isinstance(inner, Loop)]
        self.registers_read: set[Register] = {r for loop in loops for r in loop.registers()}
        self.registers_read.update(r for i in self.instructions for r in i.registers_read())
        self.registers_written = {r for i in self.instructions for r in i.registers_written()}

    @cached_property
    def producers(self) -> set[int]:
        """Ids of what it was told to wait for."""
        return {id(producer) for i in self.instructions for producer in i.after}

    def needs(self, earlier: _Touches) -> bool:
        """Whether the two must keep their order."""
        return (
            any(id(instruction) in self.producers for instruction in earlier.instructions)
            or not self.kept.isdisjoint(earlier.kept)
            or not self.registers_written.isdisjoint(earlier.registers_written | earlier.registers_read)
            or not self.registers_read.isdisjoint(earlier.registers_written)
            or _meet(self.written.values(), chain(earlier.read.values(), earlier.written.values()))
            or _meet(self.read.values(), earlier.written.values())
        )


def _meet(some: Iterable[Buffer], others: Iterable[Buffer]) -> bool:
    """Whether tensors of both groups share storage; tiles that the user placed are compared by address."""
    here, there = list(some), list(others)
    names = {buffer.name for buffer in here}
    if any(buffer.name in names for buffer in there):
        return True
    placed = [b for b in there if b.placed]
    return any(_overlap(a, b) for a in here if a.placed for b in placed)


def _overlap(a: Buffer, b: Buffer) -> bool:
    if a.memory is not b.memory or a.address is None or b.address is None:
        return False
    rows = a.address[0] < b.address[0] + b.partitions and b.address[0] < a.address[0] + a.partitions
    first, second = a.address[1], b.address[1]
    return rows and first < second + b.partition_bytes and second < first + a.partition_bytes


def _cycle(node: Node, late: Node) -> errors.NkiError:
    consumer, producer = next(flatten([node])), next(flatten([late]))
    return errors.KernelError(
        f"{_called(consumer)} is to wait for {_called(producer)}, which needs what it does",
        found=f"{_called(producer)} at {producer.span} stands behind {_called(consumer)} and depends on it",
        allowed="orders that the data allow",
        remedy="turn the edge around, or leave it out",
        span=consumer.span,
    )


def _called(instruction: Instruction) -> str:
    name = instruction.name
    return f"{instruction.mnemonic} `{name}`" if name else instruction.mnemonic
