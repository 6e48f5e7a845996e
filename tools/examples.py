"""An instruction on operands of usual size, made from its declaration alone, to show what it costs.

Letters get the largest usual size, required attributes the first value their kind accepts. Where that is not legal
(an instruction with stricter rules) there is no example, and the page has no figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import nki.language as nl
from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.errors import NkiError
from nki.ir.builder import Builder
from nki.ir.control import Register
from nki.ir.instruction import Instruction
from nki.ir.operands import REQUIRED, Attribute, Operand, RegisterOperand
from nki.ir.program import Access, Buffer, Shape
from nki.ir.verify import verify
from nki.target import Target

_NUMBER = 2.0
_NEAR_TO_FAR = (MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.shared_hbm)


@dataclass(frozen=True)
class Choice:
    """One attempt: the free size, what the inputs hold, and where and as what the output is kept."""

    target: Target
    free: int
    dtype: DType
    output_memory: MemoryRegion
    output_dtype: DType

    def memory(self, operand: Operand) -> MemoryRegion:
        """Where an operand lives: the output as chosen, DMA sources in HBM, all else in SBUF where it may."""
        order: tuple[MemoryRegion, ...] = _NEAR_TO_FAR
        if operand.is_output:
            order = (self.output_memory, *_NEAR_TO_FAR)
        elif MemoryRegion.shared_hbm in operand.memories:
            order = _NEAR_TO_FAR[::-1]
        return next(each for each in order if each in operand.memories)

    def kind(self, operand: Operand) -> DType:
        """The data type of an operand."""
        first = self.output_dtype if operand.is_output else self.dtype
        return next(each for each in (first, nl.float32, *sorted(operand.dtypes)) if each in operand.dtypes)

    def shape(self, operand: Operand) -> Shape:
        """The shape that an operand's letters stand for."""
        sizes = {"P": self.target.pmax, "K": self.target.pmax, "M": self.target.gemm_stationary_fmax}
        letters = operand.dims if len(operand.dims) > 1 else ("P", "F")
        return tuple(
            int(letter) if letter.isdigit() else sizes.get(letter, self.free if axis else self.target.pmax)
            for axis, letter in enumerate(letters)
        )


def example(cls: type[Instruction], target: Target, dtype: DType) -> Instruction | None:
    """A legal instruction of the class whose inputs are of `dtype`, or None."""
    attempts = product((target.psum_bank_fmax, target.pmax), _NEAR_TO_FAR[:2], (dtype, nl.float32))
    for free, memory, output_dtype in attempts:
        try:
            return _build(cls, Choice(target, free, dtype, memory, output_dtype))
        except (NkiError, LookupError):
            continue
    return None


def _build(cls: type[Instruction], choice: Choice) -> Instruction:
    values: dict[str, Any] = {}
    for name, parameter in cls.parameters.items():
        if isinstance(parameter, Operand):
            values[name] = _operand(parameter, choice.shape(parameter), choice)
        elif isinstance(parameter, RegisterOperand):
            values[name] = Register(name)
        else:
            values[name] = (
                _value(parameter, choice) if isinstance(parameter, Attribute) else parameter.default
            )
    shapes = cls(values).array_shapes()
    for operand in cls.operands:
        if "*" in operand.dims and operand.name in shapes:
            rows, *rest = shapes[operand.name]
            values[operand.name] = _operand(operand, (rows, *(rest or [1])), choice)
    built = cls(values)
    verify(built, choice.target)
    built.resolve(Builder("example", choice.target, grid=None))
    return built


def _operand(operand: Operand, shape: Shape, choice: Choice) -> Any:
    if operand.optional:
        return operand.default
    if operand.scalar:
        return _NUMBER
    buffer = Buffer(operand.name, shape, choice.kind(operand), choice.memory(operand), label=operand.name)
    whole = Access.whole(buffer)
    return (whole, whole) if operand.many else whole


def _value(attribute: Attribute, choice: Choice) -> Any:
    if attribute.default is not REQUIRED:
        return attribute.default
    for candidate in (nl.add, nl.exp, nl.greater_equal, 1, True, [[1, choice.free]], "text"):
        try:
            return attribute.kind.convert(candidate)
        except (NkiError, TypeError, ValueError):
            continue
    raise LookupError(attribute.name)
