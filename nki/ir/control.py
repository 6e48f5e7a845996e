"""What a program has when something is known only on the device: registers, dynamic addresses and loops.

A `Register` is one 32-bit value of the sequencer. A `Dynamic` on an `Access` says that the window's place depends on a
register or on indices in SBUF. A `Loop` is a node among the instructions whose body runs as often as its registers say;
loops with bounds known at staging are unrolled by Python and leave no node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from nki.enums import engine as Engine
from nki.span import UNKNOWN, Span

if TYPE_CHECKING:
    from nki.ir.instruction import Instruction
    from nki.ir.storage import Access
    from nki.target import Target


class Register:
    """A 32-bit register. name: unique in its program; frozen: a loop's counter, which instructions cannot write."""

    __slots__ = ("frozen", "name", "span")

    def __init__(self, name: str, *, frozen: bool = False, span: Span = UNKNOWN) -> None:
        self.name = name
        self.frozen = frozen
        self.span = span

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Register) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("register", self.name))

    def __repr__(self) -> str:
        return f"$ {self.name}"


@dataclass(frozen=True)
class Dynamic:
    """How the place of a window depends on a value of the device.

    kind: "scalar": the window starts `index * stride` elements later. "vector": row p starts `index[p] * stride`
    elements after the window's offset, whatever the stride of dimension 0. "indirect": element (p, j) is
    `index[...]` elements into the partition, the offsets read in snake order (semantics rule 42).
    index: a register, or a window on SBUF with one value ("scalar"), one per row, column after column ("vector"), or
    all offsets.
    count: the size of the dimension that is indexed. Legal values are 0 ... count - 1 as long as the window stays in
    its storage (`Access.places`).
    """

    kind: str
    index: Register | Access
    stride: int
    count: int

    @property
    def signature(self) -> tuple[object, ...]:
        """What legality and cost may depend on."""
        index = self.index
        inner = index.signature if not isinstance(index, Register) else "register"
        return (self.kind, inner, self.stride, self.count)


def offset_group(engine: Engine, target: Target) -> int:
    """Partitions that share one list of offsets with tensor indirection (semantics rule 42)."""
    return target.quadrant_partitions if engine is Engine.tensor else target.gpsimd_core_partitions


@dataclass(eq=False)
class Loop:
    """A loop on the device.

    kind: "for" counts `counter` from `start` while it is below `stop`, by `step`; "while" runs its body as long as the
    register `condition` is not 0, tested before each pass.
    start, stop: numbers or registers.
    """

    kind: str
    body: list[Instruction | Loop] = field(default_factory=list)
    counter: Register | None = None
    start: int | Register = 0
    stop: int | Register = 0
    step: int = 1
    condition: Register | None = None
    span: Span = UNKNOWN

    def registers(self) -> list[Register]:
        """The registers the loop itself reads."""
        return [r for r in (self.start, self.stop, self.condition) if isinstance(r, Register)]


Node = Union["Instruction", Loop]


def steps(loop: Loop) -> int | None:
    """Number of passes of a loop whose bounds are numbers; `None` if the device decides."""
    if loop.kind != "for" or isinstance(loop.start, Register) or isinstance(loop.stop, Register):
        return None
    return len(range(loop.start, loop.stop, loop.step))
