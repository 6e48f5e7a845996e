"""The tree of plain records that the text of a program is read into, before anything in it is looked up.

One record per line of the text, and one that holds its lines per loop. `records.py` makes them from what lark finds,
`parser.py` and `replay.py` make a program of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Union

from lark import Token

from nki.errors import IrSyntaxError
from nki.ir.notation import Slice, unquote

DEEPEST_LIST = 8
"""How deep lists of values may be nested."""

DEEPEST_LOOP = 32
"""How deep loops may be nested."""


class TokenError(Exception):
    """A mistake found while the tree is built: the error and the token it is about."""

    def __init__(self, error: IrSyntaxError, token: Token) -> None:
        super().__init__(error)
        self.error = error
        self.token = token


class Window(NamedTuple):
    """`%t.view(dtype)[entries]` or `%t.view(dtype).ap([pairs], offset=...)`, and `.at(...)`; `None` for parts that are
    not written."""

    buffer: Token
    dtype: Token | None
    entries: tuple[int | Slice, ...] | None
    pairs: tuple[tuple[int, int], ...] | None
    offset: int
    at: At | None = None


class At(NamedTuple):
    """`.at($r, stride=..., count=...)`: where the device puts a window. The index is a register's name or a window."""

    word: Token
    by: Token | Window
    stride: int
    legal: int


class RegisterLine(NamedTuple):
    """One declaration of a register."""

    name: Token
    frozen: bool
    source: Token | None


class BufferLine(NamedTuple):
    """One declaration of storage."""

    name: Token
    shape: tuple[int, ...]
    dtype: Token
    memory: Token
    role: str
    address: tuple[bool, int, int] | None
    label: str | None
    core: int
    loop: Token | None
    source: Token | None
    data: list[Token] | None


class InstructionLine(NamedTuple):
    """One instruction. Values are numbers, strings, `None`, symbols, tuples of these, windows, or
    tokens for registers."""

    label: Token | None
    mnemonic: Token
    operands: list[tuple[Token, Any]]
    attributes: list[tuple[Token, Any]]
    engine: Token | None
    after: list[Token]
    source: Token | None


Line = Union[InstructionLine, "LoopLine"]


class LoopLine(NamedTuple):
    """A loop and the lines between its braces. `register` is its counter or its condition."""

    label: Token | None
    kind: str
    register: Token
    start: Token | None
    stop: Token | None
    step: Token | None
    source: Token | None
    body: list[Line]


class SourceLine(NamedTuple):
    """One frame of a place in the user's source."""

    name: Token
    file: str
    line: int
    column: int | None
    end_column: int | None
    function: str
    caller: Token | None


class Kernel(NamedTuple):
    """The second line of a text."""

    name: str
    arguments: list[Token]
    result_form: str
    results: list[Token]
    target: Token
    like: Token | None
    changes: list[tuple[Token, Any]]
    source: Token | None


class Tree(NamedTuple):
    """All of a text."""

    kernel: Kernel
    flags: list[str]
    buffers: list[BufferLine]
    registers: list[RegisterLine]
    cores: list[tuple[Token, list[Line]]]
    sources: list[SourceLine]


def text_of(token: Token) -> str:
    """A word, or what a quoted string stands for."""
    if token.type != "STRING":
        return str(token)
    try:
        return unquote(token)
    except IrSyntaxError as error:
        raise TokenError(error, token) from None
