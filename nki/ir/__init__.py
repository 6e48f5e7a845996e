"""What a program is: buffers, windows on them, instructions, and the kernel that holds them; its text and its checks.

Read `program.py` first, then `instruction.py` and `operands.py` (how an instruction is declared), `verify.py` and
`wellformed.py` (what is legal), `printer.py`, `parser.py` and `grammar.lark` (the text form). No instruction is named
here: they are classes in `nki/isa`, and register themselves when that package is imported.

    text = print_program(program)            # also str(program)
    program == parse_program(text)
"""

from __future__ import annotations

from nki.ir.instruction import REGISTRY, Instruction
from nki.ir.printer import print_program
from nki.ir.program import Access, Buffer, Program
from nki.ir.verify import verify
from nki.ir.wellformed import check_program

__all__ = [
    "REGISTRY",
    "Access",
    "Buffer",
    "Instruction",
    "Program",
    "check_program",
    "parse_program",
    "print_program",
    "verify",
]


def parse_program(text: str, filename: str = "<string>") -> Program:
    """The program that a text describes; `filename` is what errors call it. See `nki/ir/parser.py`."""
    from nki.ir.parser import parse_program  # loads lark, which only readers of texts need

    return parse_program(text, filename)
