"""From text to a program: the records of `tree.py` are replayed, step by step, as staging would have done it.

Every instruction is verified and resolved anew (`replay.py`), so an illegal program is refused with the instruction's
own error, placed at the line of the text. Instructions are looked up in the registry, which the caller fills by
importing `nki.isa`. Loading a text never executes anything from it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import fields, replace
from enum import Enum
from typing import Any

import numpy as np
from lark import Token

from nki import errors
from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.ir.builder import Builder
from nki.ir.control import Loop, Register
from nki.ir.notation import default_label, unquote
from nki.ir.operands import Symbol
from nki.ir.program import Buffer, Program, Shape
from nki.ir.replay import DTYPES, Core, Declared
from nki.ir.syntax import Text, read_tree
from nki.ir.tree import BufferLine, Kernel, Line, LoopLine, RegisterLine, SourceLine, Tree, text_of
from nki.ir.wellformed import check_buffer, check_program, check_result
from nki.span import UNKNOWN, Frame, Span
from nki.target import Target, get_target

_MEMORIES = {memory.value: memory for memory in MemoryRegion}


def parse_program(text: str, filename: str = "<string>") -> Program:
    """The program that a text describes; `filename` is what errors call it.

    Raises `IrSyntaxError` for a text that is none, and the instruction's own error for an illegal program.
    """
    source = Text(text, filename)
    tree = read_tree(source)
    program = _Reader(source, tree).program()
    try:
        check_program(program)
    except errors.NkiError as error:
        error.span = None  # the user's; the place in the text says more here
        raise source.place(error, tree.kernel.target, whole_line=True) from None
    return program


class _Reader:
    """Makes the program of one tree: places, buffers, registers, signature, then the cores.

    loops: by core, those that buffers are allocated in and that have not been met yet.
    """

    def __init__(self, source: Text, tree: Tree) -> None:
        self.source = source
        self.tree = tree
        self.declared = Declared({}, {}, {})
        self.loops: dict[int, dict[str, Loop]] = {}

    def program(self) -> Program:
        kernel = self.tree.kernel
        for place in self.tree.sources:
            self._span(place)
        program = Program(kernel.name, self._target(kernel), flags=set(self.tree.flags))
        program.span = self._place(kernel.source)
        for declaration in self.tree.buffers:
            program.buffers.append(self._buffer(declaration, program.target))
        for each in self.tree.registers:
            program.registers.append(self._register(each))
        program.arguments = [self._named(name, "argument") for name in kernel.arguments]
        program.results = [self._named(name, "result") for name in kernel.results]
        program.result_form = kernel.result_form
        if self.tree.cores:
            program.cores = []
        self._replay(program)
        return program

    def _replay(self, program: Program) -> None:
        for expected, (number, lines) in enumerate(self.tree.cores):
            if int(number) != expected:
                message = f"core {number} stands where core {expected} is expected"
                allowed = "cores counted from 0, in order"
                raise self.source.error(number, message, allowed=allowed, remedy=f"call it core {expected}")
            grid = len(self.tree.cores) if len(self.tree.cores) > 1 else None
            builder = Builder(program.name, program.target, grid=grid, core=expected)
            builder.program.buffers = program.buffers
            builder.program.registers = program.registers
            core = Core(self.source, builder, self.declared, self.loops.get(expected, {}))
            for line in lines:
                core.replay(line)
            program.cores += builder.program.cores
            program.diagnostics += builder.program.diagnostics

    # the header

    def _target(self, kernel: Kernel) -> Target:
        try:
            target = get_target(text_of(kernel.like or kernel.target))
        except errors.NkiError as error:
            raise self.source.place(error, kernel.like or kernel.target) from None
        changes: dict[str, Any] = {} if kernel.like is None else {"name": text_of(kernel.target)}
        known = {field.name: getattr(target, field.name) for field in fields(target) if field.init}
        for name, value in kernel.changes:
            if name in ("name", "version") or name in changes:
                message = f"`{name}` cannot be changed here"
                raise self.source.error(name, message, allowed="other numbers, once", remedy=f"remove {name}")
            changes[str(name)] = self._number(name, value, known)
        return replace(target, **changes) if changes else target

    def _number(self, name: Token, value: Any, known: dict[str, Any]) -> Any:
        usual = self.source.lookup(name, known, "number of the target")
        if isinstance(usual, Enum) and isinstance(value, Symbol):
            value = type(usual).__members__.get(value.text)
        if type(value) is not type(usual):
            wanted = f"of type {type(usual).__name__}, as {usual}"
            message = f"`{name}` must be {wanted}"
            raise self.source.error(name, message, allowed=wanted, remedy=f"pass a value {wanted}")
        return value

    def _named(self, name: Token, role: str) -> Buffer:
        buffer = self.source.lookup(name, self.declared.buffers, "buffer")
        try:
            if role == "result":
                check_result(buffer)
            elif buffer.role != role:
                raise _no_argument(name)
        except errors.NkiError as error:
            raise self.source.place(error, name) from None
        return buffer

    def _twice(self, name: Token) -> errors.NkiError:
        message = f"{name} is declared twice"
        return self.source.error(name, message, allowed="one line for each name", remedy="rename one of them")

    # places

    def _span(self, line: SourceLine) -> None:
        if line.name in self.declared.spans:
            raise self._twice(line.name)
        frame = Frame(line.file, line.line, line.function, line.column, line.end_column)
        callers = () if line.caller is None else self._place(line.caller).frames
        self.declared.spans[str(line.name)] = Span((frame, *callers))

    def _place(self, name: Token | None) -> Span:
        return UNKNOWN if name is None else self.source.lookup(name, self.declared.spans, "place")

    # storage and registers

    def _buffer(self, line: BufferLine, target: Target) -> Buffer:
        if line.name in self.declared.buffers:
            raise self._twice(line.name)
        dtype = self.source.lookup(line.dtype, DTYPES, "dtype")
        memory = self.source.lookup(line.memory, _MEMORIES, "memory")
        loop = self._loop(line)
        try:
            name = _name(line.name)
            buffer = Buffer(
                name,
                line.shape,
                dtype,
                memory,
                role=line.role,
                address=None if line.address is None else line.address[1:],
                label=default_label(name) if line.label is None else line.label,
                span=self._place(line.source),
                core=line.core,
                loop=loop,
                data=None if line.data is None else self._data(line.data, dtype, line.shape),
            )
            check_buffer(buffer, target)
        except errors.NkiError as error:
            raise self.source.place(error, line.name) from None
        buffer.placed = line.address is not None and line.address[0]
        self.declared.buffers[str(line.name)] = buffer
        return buffer

    def _loop(self, line: BufferLine) -> Loop | None:
        """The loop that a buffer is allocated in; it is filled when its line is read."""
        if line.loop is None:
            return None
        lines = self.tree.cores[line.core][1] if line.core < len(self.tree.cores) else []
        if line.loop not in _labels_of_loops(lines):
            message = f"no loop of core {line.core} has the label {line.loop}"
            allowed = "the label of the loop that the buffer is allocated in"
            remedy = f"write {line.loop} before that loop"
            raise self.source.error(line.loop, message, allowed=allowed, remedy=remedy)
        return self.loops.setdefault(line.core, {}).setdefault(str(line.loop), Loop("for"))

    def _register(self, line: RegisterLine) -> Register:
        if line.name in self.declared.registers:
            raise self._twice(line.name)
        try:
            register = Register(_name(line.name), frozen=line.frozen, span=self._place(line.source))
        except errors.NkiError as error:
            raise self.source.place(error, line.name) from None
        self.declared.registers[str(line.name)] = register
        return register

    def _data(self, pieces: Iterable[Token], dtype: DType, shape: Shape) -> np.ndarray:
        try:
            data = base64.b64decode("".join(text_of(piece) for piece in pieces), validate=True)
            return np.frombuffer(data, dtype.numpy).reshape(shape)
        except (binascii.Error, ValueError):
            raise errors.IrSyntaxError(
                "the data of this constant are not the base64 text of its bytes",
                allowed=f"{list(shape)} of {dtype}, row-major",
                remedy="print the program anew; data cannot be edited by hand",
            ) from None


def _labels_of_loops(lines: list[Line]) -> set[str]:
    """The labels of all loops among the lines of a core."""
    found = set()
    waiting = [*lines]
    while waiting:
        line = waiting.pop()
        if isinstance(line, LoopLine):
            found.add(str(line.label))
            waiting += line.body
    return found


def _name(token: Token) -> str:
    """The name behind a percent or dollar sign."""
    return unquote(token[1:]) if token[1] in "'\"" else str(token[1:])


def _no_argument(name: Token) -> errors.NkiError:
    return errors.KernelError(
        f"{name} is no argument",
        allowed="buffers declared with `argument`",
        remedy=f"write `argument` behind the memory of {name}",
    )
