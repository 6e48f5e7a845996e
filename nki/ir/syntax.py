"""From the text of a program to a tree of records, by lark; mistakes become errors in friendly words.

`grammar.lark` is the syntax, `tree.py` what comes of it, by `records.py`. Nothing of a text is ever evaluated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeVar, cast

from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from nki.errors import IrSyntaxError, IrVersionError, NkiError
from nki.ir.notation import FORMAT_VERSION
from nki.ir.records import Records
from nki.ir.tree import TokenError, Tree
from nki.span import Frame, Span

T = TypeVar("T")

LISTED_MOST = 24
"""How many words an error text lists at most."""

_FIRST_LINE = re.compile(r"(?:[ \t]*(?://[^\n]*)?\r?\n)*[ \t]*nkir[ \t]+([0-9]{1,18})\b")
_QUOTES = ("'", '"')
_WORDS = {
    "_NL": "the end of the line",
    "$END": "the end of the text",
    "NAME": "a name",
    "BUFFER": "a buffer (%name)",
    "STRING": "a quoted string",
    "REGISTER": "a register ($name)",
    "LABEL": "a label (@name)",
    "SOURCE": "a place (#number)",
    "NAT": "a number",
    "INT": "an integer",
    "FLOAT": "a number",
    "RANGE": "a slice (start:stop)",
    "ROLE": "`argument` or `constant`",
    "AT": "`.at`",
}


@cache
def _lark() -> Lark:
    grammar = files("nki.ir").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", transformer=Records())


@dataclass(frozen=True)
class TextFrame(Frame):
    """A place in a program text, which knows its line even if the text is no file."""

    quoted: str = ""

    @property
    def text(self) -> str:
        """The line."""
        return self.quoted


class Text:
    """A program text under its file name: says where a token stands and places errors there."""

    def __init__(self, text: str, filename: str) -> None:
        self.text = text if text.endswith("\n") else text + "\n"
        self.filename = filename

    def line(self, number: int) -> str:
        """A line of the text, counted from 1."""
        lines = self.text.split("\n", number)
        return lines[number - 1].rstrip("\r") if number <= len(lines) else ""

    def place(self, error: NkiError, token: Token, *, whole_line: bool = False) -> NkiError:
        """`error`, placed at a token (or at its line) of this text."""
        line, column = token.line or 1, (token.column or 1) - 1
        end = column + len(token)
        if whole_line:
            shown = self.line(line)
            column, end = len(shown) - len(shown.lstrip()), len(shown.rstrip())
        return self.place_at(error, line, column, end)

    def place_at(self, error: NkiError, line: int, column: int, end: int) -> NkiError:
        """`error`, placed at a part of a line; columns count from 0."""
        error.message = f"{self.filename}:{line}:{column + 1}: {error.message}"
        frame = TextFrame(self.filename, line, "the program text", column, end, self.line(line))
        return error.at(Span((frame,)))

    def error(
        self, token: Token, message: str, *, allowed: str, remedy: str, found: str | None = None
    ) -> NkiError:
        """A syntax error at a token."""
        error = IrSyntaxError(message, found=found or str(token), allowed=allowed, remedy=remedy)
        return self.place(error, token)

    def lookup(self, token: Token, table: Mapping[str, T], what: str) -> T:
        """What a word stands for; an error that lists the words of the table, or the nearest of many."""
        found = table.get(token)
        if found is None:
            close = difflib.get_close_matches(token, table, n=1)
            allowed = ", ".join(table) if len(table) <= LISTED_MOST else f"one of {len(table)} names"
            remedy = f"did you mean `{close[0]}`?" if close else f"declare or correct {token}"
            raise self.error(token, f"unknown {what} {token}", allowed=allowed or "none", remedy=remedy)
        return found


def read_tree(source: Text) -> Tree:
    """The tree of a text; raises `IrSyntaxError` or `IrVersionError`."""
    _check_version(source)
    try:
        # lark cannot know that the transformer leaves no `lark.Tree` behind.
        return cast(Tree, _lark().parse(source.text))
    except TokenError as mistake:
        raise source.place(mistake.error, mistake.token) from None
    except UnexpectedInput as unexpected:
        raise _syntax_error(source, unexpected) from None


def _check_version(source: Text) -> None:
    match = _FIRST_LINE.match(source.text)
    if match is None or int(match[1]) == FORMAT_VERSION:
        return
    line = source.text.count("\n", 0, match.start(1)) + 1
    newer = int(match[1]) > FORMAT_VERSION
    error = IrVersionError(
        f"this text is written in format {match[1]}; this version of nki reads format {FORMAT_VERSION}",
        found=f"nkir {match[1]}",
        allowed=f"nkir {FORMAT_VERSION}",
        remedy="upgrade open-nki" if newer else "print the program anew from its kernel",
    )
    column = match.start(1) - (source.text.rfind("\n", 0, match.start(1)) + 1)
    raise source.place_at(error, line, column, column + len(match[1]))


def _syntax_error(source: Text, unexpected: UnexpectedInput) -> NkiError:
    line, column = unexpected.line, unexpected.column
    expected: set[str] = set()
    found = ""
    if isinstance(unexpected, UnexpectedToken):
        expected = set(unexpected.accepts or unexpected.expected)
        found = str(unexpected.token)
        if unexpected.token.type == "$END" or not found.strip():
            found = _WORDS["$END" if unexpected.token.type == "$END" else "_NL"]
    elif isinstance(unexpected, UnexpectedCharacters):
        expected = set(unexpected.allowed or ())
        found = source.text[unexpected.pos_in_stream or 0]
    if found == _WORDS["$END"] or line < 1:
        line, column = source.text.count("\n"), len(source.line(source.text.count("\n"))) + 1
    allowed = _in_words(expected)
    quoted = found if found in _WORDS.values() else f"`{found}`"
    error = IrSyntaxError(
        f"expected {allowed}, found {quoted}",
        found=found,
        allowed=allowed,
        remedy="close the string" if found in _QUOTES else "nki/ir/grammar.lark describes the format",
    )
    return source.place_at(error, line, column - 1, column - 1 + (len(found) if quoted != found else 1))


def _in_words(terminals: set[str]) -> str:
    words = set()
    for name in terminals:
        if name in _WORDS:
            words.add(_WORDS[name])
        elif name != "IGNORE" and not name.startswith("__IGNORE"):
            pattern = _lark().get_terminal(name).pattern
            if isinstance(pattern, PatternStr):
                words.add(f"`{pattern.value}`")
    *others, last = sorted(words, key=lambda word: (word.startswith("`"), word)) or ["something else"]
    return f"{', '.join(others)} or {last}" if others else last
