"""A program as text: everything that is run and timed, in the form that `parser.py` reads back.

`grammar.lark` describes the form and shows an example. Diagnostics are left out, and so is every attribute that has
its default value; the engine is always written, because the default leaves its choice to the verifier.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import fields
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from nki.ir.control import Loop, Node, Register
from nki.ir.instruction import Instruction
from nki.ir.notation import (
    FORMAT_VERSION,
    access_text,
    buffer_text,
    default_label,
    name_text,
    register_text,
)
from nki.ir.operands import REQUIRED, Operand, RegisterOperand
from nki.ir.program import Access, Buffer, Program, flatten
from nki.span import UNKNOWN, Frame, Span
from nki.target import Target, get_target

DATA_WIDTH = 100
"""Characters of base64 in one line."""


def print_program(program: Program) -> str:
    """The text of a program; it ends with a newline."""
    return "\n".join(_Printer(program).lines()) + "\n"


class _Form(NamedTuple):
    """How the parameters of one instruction class are written: (name, show, text of the default)."""

    operands: tuple[tuple[str, str | None], ...]
    attributes: tuple[tuple[str, Callable[[Any], str], Any, str | None], ...]


def _form(cls: type[Instruction]) -> _Form:
    operands = tuple(
        (operand.name, None if operand.default is REQUIRED else _number_text(operand.default))
        for operand in cls.parameters.values()
        if isinstance(operand, (Operand, RegisterOperand))
    )
    attributes = tuple(
        (spec.name, spec.kind.show, spec.default, _default_text(spec.kind.show, spec.default))
        for spec in cls.attributes
    )
    return _Form(operands, attributes)


def _default_text(show: Callable[[Any], str], default: Any) -> str | None:
    if default is REQUIRED:
        return None
    return "None" if default is None else show(default)


def _number_text(value: Any) -> str:
    """A number that stands for a tensor or a register, so that it is read back with its type and all its digits."""
    return repr(value)


class _Printer:
    """One run over a program; collects the places it meets for the table at the end."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.labels: dict[int, str] = {}
        self._forms: dict[type[Instruction], _Form] = {}
        self._places: dict[tuple[Frame, int], int] = {}
        self._spans: dict[int, str] = {}
        self._accesses: dict[tuple[Any, ...], str] = {}

    def lines(self) -> Iterator[str]:
        """The text, line by line."""
        program = self.program
        yield f"nkir {FORMAT_VERSION}"
        arguments = ", ".join(buffer_text(buffer.name) for buffer in program.arguments)
        yield (
            f"kernel {name_text(program.name)}({arguments}){self._results()} on {_target_text(program.target)}"
            f"{self._place(program.span)}"
        )
        if program.flags:
            yield f"flags {', '.join(name_text(flag) for flag in sorted(program.flags))}"
        self._number_labels()
        if program.buffers:
            yield "buffers"
            for buffer in program.buffers:
                yield from self._buffer(buffer)
        if program.registers:
            yield "registers"
            for register in program.registers:
                frozen = " frozen" if register.frozen else ""
                yield f"  {register_text(register)}{frozen}{self._place(register.span)}"
        for number, nodes in enumerate(program.cores):
            yield f"core {number}"
            yield from self._block(nodes, "  ")
        if self._places:
            yield "sources"
            yield from map(_frame_text, self._places.items())

    def _results(self) -> str:
        program = self.program
        names = ", ".join(buffer_text(buffer.name) for buffer in program.results)
        if program.result_form == "none":
            return ""
        return f" -> {names}" if program.result_form == "one" else f" -> ({names})"

    def _buffer(self, buffer: Buffer) -> Iterator[str]:
        shape = ", ".join(map(str, buffer.shape))
        parts = [f"  {buffer_text(buffer.name)}: [{shape}] {buffer.dtype} in {buffer.memory.value}"]
        if buffer.role != "internal":
            parts.append(buffer.role)
        if buffer.address is not None:
            partition, byte = buffer.address
            parts.append(f"{'fixed ' if buffer.placed else ''}at ({partition}, {byte})")
        if buffer.label != default_label(buffer.name):
            parts.append(f"label {buffer.label!r}")
        if buffer.core:
            parts.append(f"core {buffer.core}")
        if buffer.loop is not None:
            parts.append(f"loop {self.labels.get(id(buffer.loop), '@?')}")
        text = " ".join(parts) + self._place(buffer.span)
        if buffer.data is None:
            yield text
            return
        yield f"{text} data"
        data = base64.b64encode(np.ascontiguousarray(buffer.data).tobytes()).decode("ascii")
        for start in range(0, len(data), DATA_WIDTH):
            yield f"    '{data[start : start + DATA_WIDTH]}'"

    def _number_labels(self) -> None:
        """Label what others refer to: instructions that are waited for, and loops that tiles are allocated in."""
        loops = {id(buffer.loop) for buffer in self.program.buffers if buffer.loop is not None}
        for nodes in self.program.cores:
            wanted = loops.union(id(each) for node in flatten(nodes) for each in node.after)
            if wanted:
                found = [id(node) for node in _all_nodes(nodes) if id(node) in wanted]
                self.labels.update((each, f"@{number}") for number, each in enumerate(found, 1))

    def _block(self, nodes: list[Node], indent: str) -> Iterator[str]:
        """The lines of a core or of a loop's body."""
        for node in nodes:
            label = self.labels.get(id(node))
            begin = f"{indent}{label} " if label else indent
            if isinstance(node, Loop):
                yield f"{begin}{_loop_text(node)} {{{self._place(node.span)}"
                yield from self._block(node.body, indent + "  ")
                yield f"{indent}}}"
            else:
                yield begin + self._instruction(node)

    def _instruction(self, instruction: Instruction) -> str:
        values = instruction.__dict__
        form = self._forms.get(type(instruction)) or self._forms.setdefault(
            type(instruction), _form(type(instruction))
        )
        operands = []
        for name, default in form.operands:
            value = values.get(name)
            if isinstance(value, Access):
                operands.append(f"{name}={self._access(value)}")
            elif isinstance(value, tuple):
                operands.append(f"{name}=[{', '.join(map(self._access, value))}]")
            elif isinstance(value, Register):
                operands.append(f"{name}={register_text(value)}")
            elif _number_text(value) != default:
                operands.append(f"{name}={_number_text(value)}")
        attributes = []
        for name, show, default, default_text in form.attributes:
            value = values.get(name)
            if value is not default:
                text = show(value)
                if text != default_text:
                    attributes.append(f"{name}={text}")
        line = instruction.mnemonic
        if operands:
            line += " " + ", ".join(operands)
        if attributes:
            line += " {" + ", ".join(attributes) + "}"
        line += f" engine={instruction.engine}"
        if instruction.after:
            after = ", ".join(self.labels.get(id(producer), "@?") for producer in instruction.after)
            line += f" after=[{after}]"
        return line + self._place(instruction.span)

    def _access(self, access: Access) -> str:
        key = (id(access.buffer), access.dtype, access.offset, access.shape, access.strides, access.dynamic)
        text = self._accesses.get(key)
        if text is None:
            text = self._accesses[key] = access_text(access)
        return text

    def _place(self, span: Span) -> str:
        """` #3`, or nothing for what has no source."""
        text = self._spans.get(id(span))
        if text is None:
            number = 0
            for frame in () if span == UNKNOWN else reversed(span.frames):
                number = self._places.setdefault((frame, number), len(self._places) + 1)
            text = self._spans[id(span)] = f" #{number}" if number else ""
        return text


def _all_nodes(nodes: list[Node]) -> Iterator[Node]:
    """Loops and instructions in the order of the text."""
    for node in nodes:
        yield node
        if isinstance(node, Loop):
            yield from _all_nodes(node.body)


def _loop_text(loop: Loop) -> str:
    if loop.kind == "while":
        return f"while {register_text(loop.condition)}"
    start, stop = (
        register_text(bound) if isinstance(bound, Register) else str(bound)
        for bound in (loop.start, loop.stop)
    )
    return f"for {register_text(loop.counter)} in range({start}, {stop}, {loop.step})"


def _frame_text(entry: tuple[tuple[Frame, int], int]) -> str:
    (frame, caller), number = entry
    columns = ""
    if frame.column is not None or frame.end_column is not None:
        columns = ":" + ("" if frame.column is None else str(frame.column))
        if frame.end_column is not None:
            columns += f"-{frame.end_column}"
    called = f" < #{caller}" if caller else ""
    return f"  #{number} = {frame.file!r}:{frame.line}{columns} in {name_text(frame.function)}{called}"


def _target_text(target: Target) -> str:
    """`trn2`, or with the numbers in which a what-if machine differs from its generation."""
    usual = get_target(target.version)
    changes = []
    for field in fields(target):
        value = getattr(target, field.name)
        if field.init and field.name not in ("name", "version") and value != getattr(usual, field.name):
            changes.append(f"{field.name}={value.name if isinstance(value, Enum) else repr(value)}")
    text = name_text(target.name)
    if target.name != usual.name:
        text += f" like {usual.name}"
    return text + (" {" + ", ".join(changes) + "}" if changes else "")
