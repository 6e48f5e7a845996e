"""What a program is: buffers, accesses, instructions and the kernel that holds them.

Read this file first. A `Buffer` is storage in one memory; an `Access` is a strided window on a buffer, the operand of
an instruction (both in `storage.py`); a `Program` is what staging makes of a kernel for one set of shapes, dtypes,
constants and one target: lists of instructions, one per core, with loops only where they run on the device
(`control.py`). `instruction.py` says what an instruction is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nki.ir.control import Loop, Register
from nki.ir.storage import Access, Buffer, Shape, row_major
from nki.span import UNKNOWN, Span

if TYPE_CHECKING:
    from nki.errors import Diagnostic
    from nki.ir.control import Node
    from nki.ir.instruction import Instruction
    from nki.target import Target

__all__ = ["Access", "Buffer", "Program", "Shape", "flatten", "row_major"]


def flatten(nodes: list[Node]) -> Iterator[Instruction]:
    """The instructions of a list in order of the text, loop bodies once."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from flatten(node.body)
        else:
            yield node


@dataclass(eq=False)
class Program:
    """A staged kernel: what is verified, printed, run and timed.

    arguments: the kernel's tensor parameters in order (role "argument"); a parameter's name is its buffer's name.
    results: the returned tensors in order, each a whole buffer; `result_form` is "none", "one" or "tuple".
    buffers: every buffer in order of creation, arguments first.
    cores: one list per core of instructions and of loops that run on the device.
    registers: every register in order of creation.
    mutated: names of arguments that the program writes.
    diagnostics: warnings and notes found on the way; errors raise.
    flags: words that describe how the program was made ("fixed_order" if it uses addresses or ordering calls).
    """

    name: str
    target: Target
    arguments: list[Buffer] = field(default_factory=list)
    results: list[Buffer] = field(default_factory=list)
    result_form: str = "none"
    buffers: list[Buffer] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    cores: list[list[Node]] = field(default_factory=lambda: [[]])
    diagnostics: list[Diagnostic] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    span: Span = UNKNOWN

    @property
    def mutated(self) -> set[str]:
        """Names of the arguments that some instruction writes."""
        return {
            access.buffer.name
            for instruction in self.instructions()
            for access in instruction.writes()
            if access.buffer.role == "argument"
        }

    def instructions(self) -> Iterator[Instruction]:
        """All instructions, core by core; those of loop bodies once."""
        for core in self.cores:
            yield from flatten(core)

    @property
    def is_flat(self) -> bool:
        """Whether there is no loop: every instruction runs exactly once."""
        return not any(isinstance(node, Loop) for core in self.cores for node in core)

    def __str__(self) -> str:
        from nki.ir.printer import print_program

        return print_program(self)

    def __eq__(self, other: object) -> bool:
        """Equal programs have the same text: names, operands, constants, addresses, engines, spans and results."""
        if not isinstance(other, Program):
            return NotImplemented
        return str(self) == str(other)

    __hash__ = None  # type: ignore[assignment]
