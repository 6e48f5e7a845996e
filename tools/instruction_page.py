"""What the reference says about one instruction, read from its class: the view model of `instruction.md.j2`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import nki.language as nl
from nki import dtypes
from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.ir.cost import Phase
from nki.ir.instruction import EngineChoice, Instruction
from nki.ir.operands import (
    ANY_DTYPE,
    FLOATS,
    INTEGERS,
    REQUIRED,
    UNPACKED,
    Attribute,
    Operand,
    RegisterOperand,
)
from nki.ir.verify import GENERATION_NAMES
from nki.target import Target, get_target
from nki.target_facts import GENERATIONS
from tools.examples import example

_DIRECTIONS = {"in": "read", "out": "written", "inout": "written, and read"}
_RULE_NUMBERS = re.compile(r"\s*\((?:semantics )?rules? \d[^)]*\)|(?:^|;)\s*semantics rules? [\d, -]+")
_NAMED_SETS = (
    (ANY_DTYPE, "any"),
    (UNPACKED, "any but the packed ones"),
    (INTEGERS, "integers"),
    (FLOATS, "floats"),
)


@dataclass(frozen=True)
class ParameterRow:
    """One parameter, as a row of the page's first table."""

    name: str
    use: str
    accepts: str
    default: str
    doc: str


@dataclass(frozen=True)
class LimitRow:
    """A dimension letter, what bounds it and how far on each generation."""

    letter: str
    doc: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class CostRow:
    """The phases of the example on one generation."""

    target: str
    dtype: str
    engine: str
    steps: str
    time: str


@dataclass(frozen=True)
class InstructionPage:
    """Everything on the page of one instruction."""

    name: str
    signature: str
    summary: str
    paragraphs: tuple[str, ...]
    example: str
    sources: str
    engines: str
    since: str
    parameters: tuple[ParameterRow, ...]
    limits: tuple[LimitRow, ...]
    rules: tuple[tuple[str, str], ...]
    shapes: str
    costs: tuple[CostRow, ...]


def instruction_page(cls: type[Instruction]) -> InstructionPage:
    """Read a class."""
    summary, paragraphs, code, sources = _documentation(cls)
    return InstructionPage(
        name=cls.mnemonic,
        signature=_signature(cls),
        summary=summary,
        paragraphs=paragraphs,
        example=code,
        sources=sources,
        engines=engine_names(cls),
        since=first_generation(cls),
        parameters=tuple(_parameter(parameter) for parameter in cls.parameters.values()),
        limits=tuple(_limit(letter, fact) for letter, fact in cls.limits.items()),
        rules=tuple((rule.rule_severity, _without_rule_numbers(rule.rule_text)) for rule in cls.rules),
        shapes=_example_shapes(cls),
        costs=tuple(_costs(cls)),
    )


def engine_names(cls: type[Instruction]) -> str:
    """The engines an instruction can run on, the preferred one first."""
    return ", ".join({"gpsimd": "GpSimd"}.get(each.name, each.name.title()) for each in cls.engines)


def first_generation(cls: type[Instruction]) -> str:
    """The generation an instruction appeared with."""
    return GENERATION_NAMES[cls.since.value]


def _documentation(cls: type[Instruction]) -> tuple[str, tuple[str, ...], str, str]:
    """The docstring's first sentence, its paragraphs, its example and its sources."""
    text = inspect.cleandoc(cls.__doc__ or "")
    body, _, sources = text.partition("Sources:")
    body, _, code = body.partition("Example:")
    first, *rest = [" ".join(part.split()) for part in body.split("\n\n") if part.strip()]
    return (
        first,
        tuple(rest),
        "\n".join(line.strip() for line in code.strip().split("\n")),
        _without_rule_numbers(" ".join(sources.split())),
    )


def _without_rule_numbers(text: str) -> str:
    """A text without the numbers by which the source names rules of the machine."""
    return _RULE_NUMBERS.sub("", text).rstrip(" .;,") + ("." if text.endswith(".") else "")


def _signature(cls: type[Instruction]) -> str:
    """The call on several lines, one parameter each."""
    rows = [
        f"    {name},"
        if parameter.default is inspect.Parameter.empty
        else f"    {name}={_shown(parameter.default)},"
        for name, parameter in cls.signature.parameters.items()
    ]
    return "\n".join([f"nisa.{cls.mnemonic}(", *rows, ")"])


def _shown(value: Any) -> str:
    enumeration = type(value).__name__
    if isinstance(value, (bool, int, float, str, type(None), tuple)):
        return repr(value)
    return f"nisa.{enumeration}.{value.name}" if hasattr(type(value), "__members__") else f"nl.{value.name}"


def _parameter(parameter: Operand | RegisterOperand | Attribute | EngineChoice) -> ParameterRow:
    default = "required" if parameter.default is REQUIRED else f"`{_shown(parameter.default)}`"
    if isinstance(parameter, Operand):
        return ParameterRow(
            parameter.name, _DIRECTIONS[parameter.direction], _tensor(parameter), default, parameter.doc
        )
    if isinstance(parameter, Attribute):
        return ParameterRow(parameter.name, "constant", parameter.kind.describe, default, parameter.doc)
    if isinstance(parameter, RegisterOperand):
        number = ", or an integer" if parameter.numbers else ""
        use = _DIRECTIONS[parameter.direction]
        return ParameterRow(parameter.name, use, f"a register{number}", default, parameter.doc)
    members = ", ".join(f"`{each.name}`" for each in parameter.engines)
    return ParameterRow(
        "engine",
        "constant",
        f"`nisa.engine`: {members}",
        default,
        "where it runs; by default the first legal one",
    )


def _tensor(operand: Operand) -> str:
    letters = {"E": "elements in row-major order"}.get(
        " ".join(operand.dims), f"`[{', '.join(operand.dims)}]`"
    )
    memories = " or ".join(sorted({_memory(region) for region in operand.memories}))
    number = ", or a number" if operand.scalar else ""
    listed = "a list of tensors: " if operand.many else ""
    return f"{listed}{letters} in {memories}, dtype {_types(operand.dtypes)}{number}"


def _memory(region: MemoryRegion) -> str:
    return "HBM" if region.is_hbm else region.name.upper()


def _types(kinds: Iterable[DType]) -> str:
    wanted = frozenset(kinds)
    for known, name in _NAMED_SETS:
        if wanted == known:
            return name
    missing = [str(each) for each in dtypes.ALL if each not in wanted]
    if len(missing) < len(wanted) / 2:
        return f"any but {', '.join(missing)}"
    return ", ".join(str(each) for each in dtypes.ALL if each in wanted)


def _limit(letter: str, fact: str) -> LimitRow:
    facts = [get_target(name).fact(fact) for name in GENERATIONS]
    return LimitRow(letter, facts[0].doc, tuple(each.value for each in facts))


def _example_shapes(cls: type[Instruction]) -> str:
    found = example(cls, get_target(GENERATIONS[-1]), nl.float32)
    if found is None:
        return ""
    shown = [f"`{o.name}` {list(a.shape)} in {_memory(a.buffer.memory)}" for o, a in found.accesses()]
    return ", ".join(shown)


def _costs(cls: type[Instruction]) -> Iterable[CostRow]:
    for name in GENERATIONS:
        target = get_target(name)
        for dtype in (nl.float32, nl.bfloat16):
            found = example(cls, target, dtype)
            if found is not None:
                phases = found.cost(target)
                steps = "; ".join(_phase(phase) for phase in phases)
                yield CostRow(name, str(dtype), found.engine.name, steps, _time(found, phases, target))


def _phase(phase: Phase) -> str:
    if phase.transfer is not None:
        move = phase.transfer
        return f"{move.descriptors} descriptors of {move.descriptor_bytes} bytes, made by {_maker(move.dge.name)}"
    hidden = " behind the step before" if phase.background else ""
    return f"{phase.kind.replace('_', ' ')} {phase.interval} (+{phase.latency}){hidden}"


def _maker(mode: str) -> str:
    return {"none": "the host, before the run", "swdge": "GpSimd", "hwdge": "the hardware"}.get(mode, mode)


def _time(found: Instruction, phases: tuple[Phase, ...], target: Target) -> str:
    """What keeps the engine busy, and how long until the result is there, if nothing is in the way."""
    if any(phase.transfer for phase in phases):
        return "by queue and bytes"
    cycles = sum(phase.interval for phase in phases if not phase.background)
    busy = target.cycles_ps(found.engine, cycles)
    whole = target.cycles_ps(found.engine, cycles + phases[-1].latency)
    return f"{busy / 1e6:.2f} / {whole / 1e6:.2f} µs"
