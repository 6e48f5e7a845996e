"""Legality: every instruction is checked against its own declaration, once per kind of call.

The order is generation, memories, dtypes, shapes, limits, engine, rules. The outcome depends only on the
instruction's `key()` and the target, so it is remembered: a loop of a thousand alike instructions is verified once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nki import errors
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.ir.dynamic_operands import check_dynamic
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access
from nki.target import Target

GENERATION_NAMES = {2: "trn1", 3: "trn2", 4: "trn3"}


@dataclass(frozen=True)
class Fault:
    """What a rule found. `error` is the class to raise; `text` replaces the rule's own text if given."""

    operand: str | None = None
    found: object = None
    allowed: object = None
    remedy: str | None = None
    error: type[errors.NkiError] = errors.RuleError
    text: str | None = None


def rule(text: str, severity: str = "error") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a method `(self, target) -> Fault | None` of an instruction as one of its rules; `text` states the rule.

    severity "warning" or "note" makes a diagnostic of the program instead of an error.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.rule_text = text  # type: ignore[attr-defined]
        function.rule_severity = severity  # type: ignore[attr-defined]
        return function

    return mark


_verified: dict[tuple[Any, ...], tuple[Engine, tuple[tuple[str, str], ...]]] = {}
_REMEMBERED_MOST = 200_000


def verify(instruction: Instruction, target: Target) -> tuple[tuple[str, str], ...]:
    """Check one instruction, choose its engine, and return its warnings as (severity, text) pairs.

    Raises the error of the first violation; the instruction's `engine` is set only if it is legal.
    """
    own = instruction.current_key()
    key = (target, *own)
    found = _verified.get(key)
    if found is None:
        found = _verify(instruction, target)
        if len(_verified) > _REMEMBERED_MOST:
            _verified.clear()
        _verified[key] = found
    instruction.engine = found[0]
    instruction.remember_key(own)
    return found[1]


def _verify(instruction: Instruction, target: Target) -> tuple[Engine, tuple[tuple[str, str], ...]]:
    _check_generation(instruction, target)
    for operand, access in instruction.accesses():
        _check_operand(instruction, operand, access, target)
    _check_dimensions(instruction, target)
    engine = _choose_engine(instruction, target)
    if instruction.is_dynamic:
        check_dynamic(instruction, engine, target)
    warnings = []
    for check in instruction.rules:
        fault = check(instruction, target)
        if fault is None:
            continue
        text = f"{instruction.mnemonic}: {fault.text or check.rule_text}"
        error = fault.error(
            text, operand=fault.operand, found=fault.found, allowed=fault.allowed, remedy=fault.remedy
        )
        if check.rule_severity == "error":
            raise error
        warnings.append((check.rule_severity, error.explain()))
    return engine, tuple(warnings)


def _check_generation(instruction: Instruction, target: Target) -> None:
    if target.version < instruction.since:
        first = GENERATION_NAMES[instruction.since.value]
        raise errors.TargetError(
            f"{instruction.mnemonic}: this instruction does not exist on {target.name}",
            found=target.name,
            allowed=f"{first} and later",
            remedy=f"run with target='{first}' or use another instruction",
        )


def _check_operand(instruction: Instruction, operand: Operand, access: Access, target: Target) -> None:
    name = instruction.mnemonic
    if access.memory not in operand.memories:
        allowed = " or ".join(sorted(memory.value for memory in operand.memories))
        raise errors.MemoryError_(
            f"{name}: `{operand.name}` must live in {allowed}; {access.describe()} does not",
            operand=operand.name,
            found=access.memory.value,
            allowed=allowed,
            remedy=_memory_remedy(access.memory, operand),
        )
    if access.dtype not in operand.dtypes:
        allowed = ", ".join(sorted(operand.dtypes))
        raise errors.OperandDtypeError(
            f"{name}: `{operand.name}` cannot be {access.dtype}",
            operand=f"{operand.name}: {access.describe()}",
            found=str(access.dtype),
            allowed=allowed,
            remedy="copy the tile into one of an allowed dtype first (nisa.tensor_copy casts)",
        )
    if access.memory.on_chip and access.partitions > target.pmax:
        raise errors.PartitionLimitError(
            f"{name}: partition dimension {access.partitions} of `{operand.name}` exceeds maximum {target.pmax}",
            operand=f"{operand.name}: {access.describe()}",
            found=f"{access.partitions} partitions",
            allowed=f"at most {target.pmax} on {target.name}",
            remedy=f"split dimension 0 into tiles of at most {target.pmax} partitions",
        )


def _memory_remedy(found: MemoryRegion, operand: Operand) -> str:
    """What to do about an operand in the wrong memory: results are allocated elsewhere, sources are moved first."""
    if operand.is_output:
        memories = [memory for memory in _TO_ALLOCATE if memory in operand.memories]
        where = " or ".join(f"buffer=nl.{memory.value}" for memory in memories if memory.on_chip)
        move = (
            "move it out with nisa.dma_copy"
            if found.is_hbm
            else f"copy it to {found.value} with nisa.tensor_copy"
        )
        after = f", and {move} afterwards" if where else ""
        return f"allocate it with {where or f'buffer=nl.{memories[0].value}'}{after}"
    if found.is_hbm:
        return "load it into an SBUF tile first: nisa.dma_copy(dst=tile, src=...)"
    if found is MemoryRegion.psum:
        return "copy it to SBUF first: nisa.tensor_copy(dst=tile, src=...)"
    if MemoryRegion.psum in operand.memories:
        return "copy it to PSUM first: nisa.tensor_copy(dst=tile, src=...)"
    return "copy it to HBM first: nisa.dma_copy(dst=..., src=...)"


_TO_ALLOCATE = (MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.shared_hbm, MemoryRegion.private_hbm)


def _check_dimensions(instruction: Instruction, target: Target) -> None:
    seen: dict[str, tuple[int, str, Access]] = {}
    for operand, access in instruction.accesses():
        for letter, size in zip(operand.dims, instruction.extents(operand, access)):
            if letter == "*":
                continue
            wanted = (int(letter), operand.name, access) if letter.isdigit() else seen.get(letter)
            if wanted is None:
                seen[letter] = (size, operand.name, access)
            elif wanted[0] != size:
                raise _mismatch(instruction, letter, operand, access, size, wanted)
    for letter, field in instruction.limits.items():
        if letter in seen and seen[letter][0] > getattr(target, field):
            size, name, access = seen[letter]
            most = getattr(target, field)
            raise errors.LimitError(
                f"{instruction.mnemonic}: dimension {letter} of `{name}` is {size}; "
                f"{target.name} allows at most {most}",
                operand=f"{name}: {access.describe()}",
                found=size,
                allowed=f"at most {most} on {target.name} ({field})",
                remedy=f"split it into tiles of at most {most}",
            )


_MEANING = {
    "P": "partitions",
    "F": "elements per partition",
    "E": "elements",
    "K": "contraction dimension (K)",
}


def _mismatch(
    instruction: Instruction,
    letter: str,
    operand: Operand,
    access: Access,
    size: int,
    wanted: tuple[int, str, Access],
) -> errors.NkiError:
    expected, other, access_of_other = wanted
    name = instruction.mnemonic
    if letter.isdigit():
        return errors.OperandShapeError(
            f"{name}: `{operand.name}` must have {letter} element per partition, it has {size}",
            operand=f"{operand.name}: {access.describe()}",
            found=f"shape {list(access.shape)}",
            allowed=f"({access.partitions}, {letter})",
            remedy=f"pass a column, e.g. tile[:, 0:{letter}]",
        )
    return errors.OperandShapeError(
        f"{name}: dimension {letter} ({_MEANING.get(letter, 'size')}) is {expected} in `{other}` but {size} in "
        f"`{operand.name}`",
        operand=f"{operand.name}: {access.describe()}",
        found=f"{operand.name} has shape {list(access.shape)}, {other} has shape {list(access_of_other.shape)}",
        allowed=f"{letter} = {expected}, as in {other}: {access_of_other.describe()}",
        remedy=f"make dimension {letter} of `{operand.name}` and `{other}` agree",
    )


def _choose_engine(instruction: Instruction, target: Target) -> Engine:
    asked = instruction.engine if instruction.has_engine_parameter else Engine.unknown
    if not instruction.has_engine_parameter and len(instruction.engines) == 1:
        return instruction.engines[0]
    if asked is not Engine.unknown and asked not in instruction.engines:
        allowed = ", ".join(f"nisa.engine.{e.name}" for e in instruction.engines)
        raise errors.EngineError(
            f"{instruction.mnemonic}: the {asked.name} engine cannot run this instruction",
            operand="engine",
            found=asked.name,
            allowed=allowed,
            remedy=f"pass one of {allowed}, or leave `engine` out",
        )
    reasons = []
    for engine in (asked,) if asked is not Engine.unknown else instruction.engines:
        reason = _engine_fault(instruction, engine, target)
        if reason is None:
            return engine
        reasons.append(f"{engine.name}: {reason}")
    raise errors.EngineError(
        f"{instruction.mnemonic}: no engine can run this: {'; '.join(reasons)}"
        if asked is Engine.unknown
        else f"{instruction.mnemonic}: the {asked.name} engine cannot run this: {reasons[0].split(': ', 1)[1]}",
        operand="engine",
        found=asked.name,
        allowed=", ".join(
            e.name for e in instruction.engines if _engine_fault(instruction, e, target) is None
        )
        or f"none of {', '.join(e.name for e in instruction.engines)} on {target.name}",
        remedy="leave `engine` out, or move the operand to a memory the engine reaches",
    )


def _engine_fault(instruction: Instruction, engine: Engine, target: Target) -> str | None:
    if engine is Engine.gpsimd:
        for operand, access in instruction.accesses():
            if access.memory is MemoryRegion.psum:
                return f"GpSimd cannot reach PSUM, where `{operand.name}` lives"
    return instruction.engine_fault(engine, target)
