"""One core of a program text, instruction by instruction: look up the words, then verify and append as staging does."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from lark import Token

from nki import dtypes, errors
from nki.enums import engine as Engine
from nki.ir.builder import Builder
from nki.ir.instruction import REGISTRY, Instruction
from nki.ir.notation import pattern_window, sliced_window, whole_window
from nki.ir.operands import REQUIRED, Attribute, Operand, Symbol
from nki.ir.program import Access, Buffer
from nki.ir.syntax import Text
from nki.ir.tree import InstructionLine, Window
from nki.ir.wellformed import fits, outside
from nki.span import UNKNOWN, Span

DTYPES = {str(dtype): dtype for dtype in dtypes.ALL}
_ENGINES = {engine.name: engine for engine in Engine}


class Core:
    """Replays the instruction lines of one core into a builder."""

    def __init__(
        self, source: Text, builder: Builder, buffers: Mapping[str, Buffer], spans: Mapping[str, Span]
    ) -> None:
        self.source = source
        self.builder = builder
        self.buffers = buffers
        self.spans = spans
        self.labels: dict[str, Instruction] = {}

    def replay(self, line: InstructionLine) -> None:
        """Append the instruction of one line, or raise its error at that line."""
        cls = REGISTRY.get(line.mnemonic)
        if cls is None:
            raise self._unknown_mnemonic(line.mnemonic)
        engine = self._engine(line)
        span = UNKNOWN if line.source is None else self.source.lookup(line.source, self.spans, "place")
        instruction = cls(self._values(cls, line, engine), span)
        try:
            self.builder.append(instruction)
        except errors.NkiError as error:
            if span is not UNKNOWN:
                error.notes += (f"the text says it comes from {span}",)
            raise self.source.place(error, line.mnemonic, whole_line=True) from None
        if line.engine is not None and engine not in (Engine.unknown, instruction.engine):
            runs = instruction.engine.name
            message = f"{instruction.mnemonic} runs on the {runs} engine here"
            raise self.source.error(
                line.engine, message, allowed=f"engine={runs}", remedy="leave `engine` out"
            )
        instruction.after = tuple(self.source.lookup(label, self.labels, "label") for label in line.after)
        if line.label is not None:
            if line.label in self.labels:
                message = f"two instructions have the label {line.label}"
                allowed = "one instruction for each label of a core"
                raise self.source.error(line.label, message, allowed=allowed, remedy="rename one of them")
            self.labels[str(line.label)] = instruction

    def _unknown_mnemonic(self, name: Token) -> errors.NkiError:
        if not REGISTRY:
            remedy = "import nki.isa first: it fills the registry"
        else:
            close = difflib.get_close_matches(name, REGISTRY, n=1)
            remedy = f"did you mean `{close[0]}`?" if close else "see the reference of nki.isa"
        allowed = f"one of the {len(REGISTRY)} registered instructions"
        return self.source.error(name, f"unknown instruction {name}", allowed=allowed, remedy=remedy)

    def _engine(self, line: InstructionLine) -> Engine:
        if line.engine is None:
            return Engine.unknown
        return self.source.lookup(line.engine, _ENGINES, "engine")

    def _values(self, cls: type[Instruction], line: InstructionLine, engine: Engine) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, value in line.operands:
            spec = self._parameter(cls, name, given)
            if not isinstance(spec, Operand):
                raise self._misplaced(cls, name, "an attribute and stands between braces")
            given[spec.name] = self._operand(cls, spec, name, value)
        for name, value in line.attributes:
            spec = self._parameter(cls, name, given)
            if not isinstance(spec, Attribute):
                raise self._misplaced(cls, name, "no attribute and stands outside the braces")
            given[spec.name] = self._attribute(cls, spec, name, value)
        values: dict[str, Any] = {}
        for key, parameter in cls.parameters.items():
            if key in given:
                values[key] = given[key]
            elif key == "engine":
                values[key] = engine
            elif parameter.default is REQUIRED:
                message = f"{cls.mnemonic} misses `{key}`"
                allowed = f"{cls.mnemonic}{cls.signature}"
                raise self.source.error(line.mnemonic, message, allowed=allowed, remedy=f"add {key}=...")
            else:
                values[key] = parameter.default
        return values

    def _parameter(self, cls: type[Instruction], name: Token, given: dict[str, Any]) -> Any:
        if name in given:
            message = f"{cls.mnemonic}: `{name}` is given twice"
            raise self.source.error(name, message, allowed="once", remedy="remove one of them")
        return self.source.lookup(name, cls.parameters, f"parameter of {cls.mnemonic}:")

    def _misplaced(self, cls: type[Instruction], name: Token, what: str) -> errors.NkiError:
        allowed = "operands and numbers in front, attributes between braces, then engine="
        message = f"{cls.mnemonic}: `{name}` is {what}"
        return self.source.error(name, message, allowed=allowed, remedy=f"move `{name}` there")

    def _operand(self, cls: type[Instruction], spec: Operand, name: Token, value: Any) -> Any:
        if spec.many and isinstance(value, list):
            return tuple(self._window(cls, member, w) for member, w in zip(spec.members(len(value)), value))
        if isinstance(value, Window) and not spec.many:
            return self._window(cls, spec, value)
        if value is None and (spec.default is None or spec.nullable):
            return None
        if spec.scalar and isinstance(value, (int, float)):
            return value
        wanted = "a buffer (%name) or a number" if spec.scalar else "a buffer (%name)"
        if spec.many:
            wanted = "a list of buffers ([%name, %name])"
        found = value.text if isinstance(value, Symbol) else repr(value)
        message = f"{cls.mnemonic}: `{name}` must be {wanted}, found {found}"
        raise self.source.error(name, message, found=found, allowed=wanted, remedy=f"pass {wanted}")

    def _window(self, cls: type[Instruction], spec: Operand, window: Window) -> Access:
        buffer = self.source.lookup(window.buffer, self.buffers, "buffer")
        dtype = buffer.dtype
        if window.dtype is not None:
            dtype = self.source.lookup(window.dtype, DTYPES, "dtype")
        try:
            if window.pairs is not None:
                access = pattern_window(buffer, dtype, window.pairs, window.offset)
            elif window.entries is not None:
                access = sliced_window(buffer, dtype, window.entries)
            else:
                access = whole_window(buffer, dtype)
            if not fits(access):
                raise outside(access, f"{cls.mnemonic}: `{spec.name}` ")
        except errors.NkiError as error:
            raise self.source.place(error, window.buffer) from None
        return access

    def _attribute(self, cls: type[Instruction], spec: Attribute, name: Token, value: Any) -> Any:
        try:
            return spec.kind.read(value)
        except (errors.NkiError, LookupError, ValueError, TypeError, AttributeError) as error:
            found = value.text if isinstance(value, Symbol) else repr(value)
            allowed = getattr(error, "allowed", None) or spec.kind.describe
            wanted = spec.kind.describe
            message = f"{cls.mnemonic}: `{name}` must be {wanted}, found {found}"
            raise self.source.error(
                name, message, found=found, allowed=str(allowed), remedy=f"pass {wanted}"
            ) from None
