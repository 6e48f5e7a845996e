"""One core of a program text, line by line: look up the words, then verify and append as staging does."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

from lark import Token

from nki import dtypes, errors
from nki.enums import engine as Engine
from nki.ir.blocks import check_loop, check_registers
from nki.ir.bounds import check_window
from nki.ir.builder import Builder
from nki.ir.control import Dynamic, Loop, Register
from nki.ir.instruction import REGISTRY, Instruction
from nki.ir.notation import DYNAMIC_WORDS, pattern_window, sliced_window, whole_window
from nki.ir.operands import REQUIRED, Attribute, Operand, RegisterOperand, Symbol
from nki.ir.program import Access, Buffer
from nki.ir.syntax import Text
from nki.ir.tree import DEEPEST_LOOP, At, InstructionLine, Line, LoopLine, Window
from nki.span import UNKNOWN, Span

DTYPES = {str(dtype): dtype for dtype in dtypes.ALL}
_ENGINES = {engine.name: engine for engine in Engine}
_KINDS = {word: kind for kind, word in DYNAMIC_WORDS.items()}


class Declared(NamedTuple):
    """What the lines of a core may name: buffers (`%t`), registers (`$r`), places in the source (`#1`)."""

    buffers: dict[str, Buffer]
    registers: dict[str, Register]
    spans: dict[str, Span]


class Core:
    """Replays the lines of one core into a builder.

    loops: the loops that buffers are allocated in, by their labels; those that have been found are taken out.
    """

    def __init__(self, source: Text, builder: Builder, declared: Declared, loops: dict[str, Loop]) -> None:
        self.source = source
        self.builder = builder
        self.declared = declared
        self.loops = loops
        self.labels: dict[str, Instruction] = {}
        self._registers = {register.name: register for register in declared.registers.values()}
        self._taken: set[str] = set()

    def replay(self, line: Line) -> None:
        """Append the instruction or the loop of one line, or raise its error at that line."""
        if line.label is not None:
            if line.label in self._taken:
                message = f"two lines have the label {line.label}"
                allowed = "one line for each label of a core"
                raise self.source.error(line.label, message, allowed=allowed, remedy="rename one of them")
            self._taken.add(str(line.label))
        if isinstance(line, LoopLine):
            self._loop(line)
        else:
            self._instruction(line)

    def _loop(self, line: LoopLine) -> None:
        loop = self.loops.pop(line.label, None) if line.label is not None else None
        loop = loop or Loop(line.kind)
        loop.kind, loop.span = line.kind, self._span(line.source)
        register = self._register(line.register)
        if line.kind == "while":
            loop.condition = register
        else:
            loop.counter, loop.step = register, int(line.step or 1)
            loop.start, loop.stop = self._bound(line.start), self._bound(line.stop)
        try:
            check_loop(loop, self._registers, self.builder.counters, self.builder.loops)
        except errors.NkiError as error:
            raise self.source.place(error, line.register, whole_line=True) from None
        if len(self.builder.loops) == DEEPEST_LOOP:
            allowed = f"{DEEPEST_LOOP} levels"
            message = f"loops are nested more than {DEEPEST_LOOP} deep"
            raise self.source.error(line.register, message, allowed=allowed, remedy="unroll the inner loops")
        outside = dict(self.labels)
        with self.builder.loop(loop):
            for inner in line.body:
                self.replay(inner)
        self.labels = outside  # nothing after a loop can wait for one pass of its body

    def _bound(self, token: Token | None) -> int | Register:
        if token is None:
            return 0
        return self._register(token) if token.type == "REGISTER" else int(token)

    def _register(self, token: Token) -> Register:
        return self.source.lookup(token, self.declared.registers, "register")

    def _span(self, token: Token | None) -> Span:
        return UNKNOWN if token is None else self.source.lookup(token, self.declared.spans, "place")

    def _instruction(self, line: InstructionLine) -> None:
        cls = REGISTRY.get(line.mnemonic)
        if cls is None:
            raise self._unknown_mnemonic(line.mnemonic)
        engine = self._engine(line)
        span = self._span(line.source)
        instruction = cls(self._values(cls, line, engine), span)
        try:
            check_registers(instruction, self._registers)
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
        instruction.after = tuple(map(self._producer, line.after))
        if line.label is not None:
            self.labels[str(line.label)] = instruction

    def _producer(self, label: Token) -> Instruction:
        if label in self._taken and label not in self.labels:
            message = f"{label} is no instruction that this one can wait for"
            allowed = "an earlier instruction of the same block, or of one around it"
            raise self.source.error(label, message, allowed=allowed, remedy=f"remove {label}")
        return self.source.lookup(label, self.labels, "label")

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
            if isinstance(spec, RegisterOperand):
                given[spec.name] = self._register_operand(cls, spec, name, value)
            elif isinstance(spec, Operand):
                given[spec.name] = self._operand(cls, spec, name, value)
            else:
                raise self._misplaced(cls, name, "an attribute and stands between braces")
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
        raise self._wrong_value(cls, name, value, wanted)

    def _register_operand(
        self, cls: type[Instruction], spec: RegisterOperand, name: Token, value: Any
    ) -> Any:
        if _is_register(value):
            return self._register(value)
        if (spec.numbers and isinstance(value, int)) or (value is None and spec.default is None):
            return value
        wanted = "a register ($name) or an integer" if spec.numbers else "a register ($name)"
        raise self._wrong_value(cls, name, value, wanted)

    def _wrong_value(self, cls: type[Instruction], name: Token, value: Any, wanted: str) -> errors.NkiError:
        found = _shown(value)
        message = f"{cls.mnemonic}: `{name}` must be {wanted}, found {found}"
        return self.source.error(name, message, found=found, allowed=wanted, remedy=f"pass {wanted}")

    def _window(self, cls: type[Instruction], spec: Operand, window: Window) -> Access:
        what = f"{cls.mnemonic}: `{spec.name}` "
        access = self._fixed(window)
        if window.at is not None:
            access = self._placed(access, window.at)
        try:
            check_window(access, what)
        except errors.NkiError as error:
            raise self.source.place(error, window.buffer) from None
        return access

    def _placed(self, fixed: Access, at: At) -> Access:
        index = self._fixed(at.by) if isinstance(at.by, Window) else self._register(at.by)
        dynamic = Dynamic(_KINDS[at.word], index, at.stride, at.legal)
        return Access(fixed.buffer, fixed.dtype, fixed.offset, fixed.shape, fixed.strides, dynamic)

    def _fixed(self, window: Window) -> Access:
        buffer = self.source.lookup(window.buffer, self.declared.buffers, "buffer")
        dtype = buffer.dtype
        if window.dtype is not None:
            dtype = self.source.lookup(window.dtype, DTYPES, "dtype")
        try:
            if window.pairs is not None:
                return pattern_window(buffer, dtype, window.pairs, window.offset)
            if window.entries is not None:
                return sliced_window(buffer, dtype, window.entries)
            return whole_window(buffer, dtype)
        except errors.NkiError as error:
            raise self.source.place(error, window.buffer) from None

    def _attribute(self, cls: type[Instruction], spec: Attribute, name: Token, value: Any) -> Any:
        try:
            return spec.kind.read(value)
        except (errors.NkiError, LookupError, ValueError, TypeError, AttributeError) as error:
            found = _shown(value)
            allowed = getattr(error, "allowed", None) or spec.kind.describe
            wanted = spec.kind.describe
            message = f"{cls.mnemonic}: `{name}` must be {wanted}, found {found}"
            raise self.source.error(
                name, message, found=found, allowed=str(allowed), remedy=f"pass {wanted}"
            ) from None


def _shown(value: Any) -> str:
    """A value as its text begins."""
    if isinstance(value, (Symbol, Window)):
        return value.text if isinstance(value, Symbol) else str(value.buffer)
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value) if _is_register(value) else repr(value)


def _is_register(value: Any) -> bool:
    """Whether a value of the text is the name of a register; other words and strings have been taken apart."""
    return isinstance(value, Token)
