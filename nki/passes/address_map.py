"""Who touched which bytes last: the address line of one memory, cut where windows begin and end.

Every piece of the line remembers the writes that are still visible somewhere in it and the reads since. A write
that covers earlier accesses replaces them, so a long program keeps short lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from nki.ir.program import Buffer
from nki.passes.windows import Lattice, Rectangle

Write = tuple[int, int, "Lattice | None", int, Buffer, bool]
"""first, last (across), lattice, index of the instruction, buffer, whether it accumulates."""
ReadKey = tuple[int, int, "Lattice | None", tuple[object, int]]
"""first, last (across), lattice, queue (class and engine): a later read of the same bytes by the same queue takes its
place, because a queue reads in order."""


class Piece:
    """What happened to one range of the address line."""

    __slots__ = ("reads", "writes")

    def __init__(self, writes: list[Write], reads: dict[ReadKey, tuple[int, Buffer]]) -> None:
        self.writes = writes
        self.reads = reads


class AddressMap:
    """Disjoint pieces of an address line in order; what was never touched has no piece."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._pieces: list[Piece] = []

    def pieces(self, low: int, high: int) -> list[Piece]:
        """The pieces that make up `low..high` exactly, cut and created as needed."""
        starts = self._starts
        at = bisect_left(starts, low)
        if at < len(starts) and starts[at] == low and self._ends[at] == high:
            return [self._pieces[at]]
        self._cut(low)
        self._cut(high)
        at = bisect_left(self._starts, low)
        position = low
        while position < high:
            end = self._starts[at] if at < len(self._starts) else high
            if position < end:
                self._insert(at, position, min(end, high), Piece([], {}))
            position = self._ends[at]
            at += 1
        return self._pieces[bisect_left(self._starts, low) : at]

    def wrote(self, box: Rectangle, pieces: list[Piece], write: Write) -> None:
        """Record a write to all of `box`, which `pieces` make up; the accesses it covers are forgotten."""
        clear = True
        for piece in pieces:
            if box.covers:
                _forget(piece, box)
            clear = clear and not piece.writes and not piece.reads
        if clear and len(pieces) > 1:
            self._merge(box.low, box.high, len(pieces), Piece([write], {}))
            return
        for piece in pieces:
            piece.writes.append(write)

    def _cut(self, position: int) -> None:
        at = bisect_right(self._starts, position) - 1
        if at >= 0 and self._starts[at] < position < self._ends[at]:
            old = self._pieces[at]
            end = self._ends[at]
            self._ends[at] = position
            self._insert(at + 1, position, end, Piece(old.writes.copy(), old.reads.copy()))

    def _insert(self, at: int, start: int, end: int, piece: Piece) -> None:
        self._starts.insert(at, start)
        self._ends.insert(at, end)
        self._pieces.insert(at, piece)

    def _merge(self, low: int, high: int, count: int, piece: Piece) -> None:
        at = bisect_left(self._starts, low)
        self._starts[at : at + count] = [low]
        self._ends[at : at + count] = [high]
        self._pieces[at : at + count] = [piece]


def _forget(piece: Piece, box: Rectangle) -> None:
    """Drop what a write to all of `box` hides."""
    _, _, first, last, lattice, _ = box
    if piece.reads:
        hidden = [
            k for k in piece.reads if first <= k[0] and k[1] <= last and (lattice is None or k[2] == lattice)
        ]
        for key in hidden:
            del piece.reads[key]
    if piece.writes:
        piece.writes = [
            w
            for w in piece.writes
            if w[0] < first or w[1] > last or (lattice is not None and w[2] != lattice)
        ]
