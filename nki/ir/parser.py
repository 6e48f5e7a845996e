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
from nki.ir.notation import default_label, unquote
from nki.ir.operands import Symbol
from nki.ir.program import Buffer, Program, Shape
from nki.ir.replay import DTYPES, Core
from nki.ir.syntax import Text, read_tree
from nki.ir.tree import BufferLine, Kernel, SourceLine, Tree, text_of
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
    """Makes the program of one tree: places, buffers, signature, then the cores."""

    def __init__(self, source: Text, tree: Tree) -> None:
        self.source = source
        self.tree = tree
        self.buffers: dict[str, Buffer] = {}
        self.spans: dict[str, Span] = {}

    def program(self) -> Program:
        kernel = self.tree.kernel
        for place in self.tree.sources:
            self._span(place)
        program = Program(kernel.name, self._target(kernel), flags=set(self.tree.flags))
        program.span = self._place(kernel.source)
        for declaration in self.tree.buffers:
            program.buffers.append(self._buffer(declaration, program.target))
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
            core = Core(self.source, builder, self.buffers, self.spans)
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
        buffer = self.source.lookup(name, self.buffers, "buffer")
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
        if line.name in self.spans:
            raise self._twice(line.name)
        frame = Frame(line.file, line.line, line.function, line.column, line.end_column)
        callers = () if line.caller is None else self._place(line.caller).frames
        self.spans[str(line.name)] = Span((frame, *callers))

    def _place(self, name: Token | None) -> Span:
        return UNKNOWN if name is None else self.source.lookup(name, self.spans, "place")

    # storage

    def _buffer(self, line: BufferLine, target: Target) -> Buffer:
        if line.name in self.buffers:
            raise self._twice(line.name)
        dtype = self.source.lookup(line.dtype, DTYPES, "dtype")
        memory = self.source.lookup(line.memory, _MEMORIES, "memory")
        try:
            name = unquote(line.name[1:]) if line.name[1] in "'\"" else str(line.name[1:])
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
                data=None if line.data is None else self._data(line.data, dtype, line.shape),
            )
            check_buffer(buffer, target)
        except errors.NkiError as error:
            raise self.source.place(error, line.name) from None
        buffer.placed = line.address is not None and line.address[0]
        self.buffers[str(line.name)] = buffer
        return buffer

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


def _no_argument(name: Token) -> errors.NkiError:
    return errors.KernelError(
        f"{name} is no argument",
        allowed="buffers declared with `argument`",
        remedy=f"write `argument` behind the memory of {name}",
    )
