"""From what lark finds in the text of a program to the records of `tree.py`: one method per rule of `grammar.lark`."""

from __future__ import annotations

from typing import Any

from lark import Token, Transformer, v_args

from nki.errors import IrSyntaxError
from nki.ir.notation import Slice
from nki.ir.operands import Symbol
from nki.ir.tree import (
    DEEPEST_LIST,
    At,
    BufferLine,
    InstructionLine,
    Kernel,
    Line,
    LoopLine,
    RegisterLine,
    SourceLine,
    TokenError,
    Tree,
    Window,
    text_of,
)


def _depth(value: Any) -> int:
    """How deep a value is nested. Its parts were checked before it, so the recursion is short."""
    return 1 + max(map(_depth, value), default=0) if isinstance(value, tuple) else 0


def _filled(items: tuple[Any, ...]) -> list[Any]:
    """The items of a list that may be empty (lark puts one `None` there then)."""
    return [item for item in items if item is not None]


@v_args(inline=True)
class Records(Transformer[Token, Tree]):
    """Builds the records while lark parses, one method per rule of the grammar."""

    def start(self, _version: Token, kernel: Kernel, *parts: Any) -> Tree:
        found: dict[str, list[Any]] = {"flags": [], "buffers": [], "registers": [], "sources": []}
        cores = []
        for kind, content in parts:
            if kind == "core":
                cores.append(content)
            else:
                found[kind] = content
        return Tree(kernel, found["flags"], found["buffers"], found["registers"], cores, found["sources"])

    def kernel(self, name: Token, arguments: Any, results: Any, target: Any, source: Token | None) -> Kernel:
        form, names = results or ("none", [])
        machine, like, changes = target
        return Kernel(text_of(name), arguments or [], form, names, machine, like, changes, source)

    def one_result(self, name: Token) -> tuple[str, list[Token]]:
        return "one", [name]

    def tuple_of_results(self, names: list[Token] | None) -> tuple[str, list[Token]]:
        return "tuple", names or []

    def buffer_names(self, *names: Token) -> list[Token]:
        return list(names)

    def target(self, name: Token, like: Token | None, changes: Any) -> tuple[Any, ...]:
        return name, like, changes or []

    def flags(self, *names: Token) -> tuple[str, list[str]]:
        return "flags", [text_of(name) for name in names]

    def buffers(self, *lines: BufferLine) -> tuple[str, list[BufferLine]]:
        return "buffers", list(lines)

    def buffer(self, name: Any, shape: Any, dtype: Any, memory: Any, role: Any, *rest: Any) -> BufferLine:
        address, label, core, loop, source, *data = rest
        label = text_of(label) if label is not None else None
        role = str(role or "internal")
        ends = (loop, source, *(data or [None]))
        return BufferLine(name, shape, dtype, memory, role, address, label, int(core or 0), *ends)

    def shape(self, *sizes: Token | None) -> tuple[int, ...]:
        return tuple(int(size) for size in _filled(sizes))

    def address(self, fixed: Token | None, partition: Token, byte: Token) -> tuple[bool, int, int]:
        return fixed is not None, int(partition), int(byte)

    def data(self, *pieces: Token) -> list[Token]:
        return list(pieces)

    def registers(self, *lines: RegisterLine) -> tuple[str, list[RegisterLine]]:
        return "registers", list(lines)

    def register(self, name: Token, frozen: Token | None, source: Token | None) -> RegisterLine:
        return RegisterLine(name, frozen is not None, source)

    def core(self, number: Token, *lines: Line) -> tuple[str, tuple[Token, list[Line]]]:
        return "core", (number, list(lines))

    def for_loop(self, label: Any, counter: Any, start: Any, stop: Any, step: Any, block: Any) -> LoopLine:
        return LoopLine(label, "for", counter, start, stop, step, *block)

    def while_loop(self, label: Any, condition: Any, block: Any) -> LoopLine:
        return LoopLine(label, "while", condition, None, None, None, *block)

    def block(self, source: Token | None, *lines: Line) -> tuple[Token | None, list[Line]]:
        return source, list(lines)

    def instruction(
        self, label: Any, name: Any, operands: Any, attributes: Any, engine: Any, after: Any, source: Any
    ) -> InstructionLine:
        return InstructionLine(label, name, operands or [], attributes or [], engine, after or [], source)

    def operands(self, *items: tuple[Token, Any]) -> list[tuple[Token, Any]]:
        return list(items)

    def operand(self, name: Token, value: Any) -> tuple[Token, Any]:
        return name, value

    def attributes(self, *items: tuple[Token, Any] | None) -> list[tuple[Token, Any]]:
        return _filled(items)

    attribute = operand

    def after(self, *labels: Token) -> list[Token]:
        return list(labels)

    def window(self, fixed: Window, at: At | None) -> Window:
        return fixed._replace(at=at)

    def fixed(self, buffer: Token, dtype: Token | None, inside: Any) -> Window:
        return Window(buffer, dtype, *(inside or (None, None, 0)))

    def at(self, word: Token, index: Token | Window, stride: Token, count: Token) -> At:
        return At(word, index, int(stride), int(count))

    def windows(self, *items: Window) -> list[Window]:
        return list(items)

    def slices(self, *index: int | Slice | None) -> tuple[Any, ...]:
        return tuple(_filled(index)), None, 0

    def index(self, number: Token) -> int:
        return int(number)

    def slice(self, token: Token) -> Slice:
        limits = [int(limit) if limit else None for limit in token.split(":")]
        return Slice(limits[0], limits[1], limits[2] if len(limits) > 2 else None)

    def pattern(self, *items: Any) -> tuple[Any, ...]:
        *pairs, offset = items
        return None, tuple(_filled(tuple(pairs))), int(offset or 0)

    def pair(self, step: Token, count: Token) -> tuple[int, int]:
        return int(step), int(count)

    def integer(self, token: Token) -> int:
        return int(token)

    def real(self, token: Token) -> float:
        return float(token)

    def value_list(self, *items: Any) -> tuple[Any, ...]:
        return items

    def values(self, bracket: Token, items: tuple[Any, ...] | None) -> tuple[Any, ...]:
        value = items or ()
        if _depth(value) > DEEPEST_LIST:
            error = IrSyntaxError(
                f"lists are nested more than {DEEPEST_LIST} deep",
                allowed=f"{DEEPEST_LIST} levels",
                remedy="no instruction takes such a value",
            )
            raise TokenError(error, bracket)
        return value

    def none(self) -> Any:
        return None

    def true(self) -> bool:
        return True

    def false(self) -> bool:
        return False

    def string(self, token: Token) -> str:
        return text_of(token)

    def symbol(self, token: Token) -> Symbol:
        return Symbol(str(token))

    def sources(self, *lines: SourceLine) -> tuple[str, list[SourceLine]]:
        return "sources", list(lines)

    def source(self, name: Any, file: Any, line: Any, columns: Any, function: Any, caller: Any) -> SourceLine:
        first, last = columns or (None, None)
        return SourceLine(name, text_of(file), int(line), first, last, text_of(function), caller)

    def columns(self, first: Token | None, last: Token | None) -> tuple[int | None, int | None]:
        return (None if first is None else int(first)), (None if last is None else int(last))
