"""What all instructions on tiles in SBUF and PSUM have in common: the wiring of the partitions, and the operators.

Subclass `ComputeInstruction` instead of `Instruction` to inherit these rules. DMA endpoints are not bound by them.
"""

from __future__ import annotations

from collections.abc import Iterator

from nki import dtypes, errors
from nki.enums import MemoryRegion
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access
from nki.ir.verify import GENERATION_NAMES, Fault, rule
from nki.isa.alu import AluOp
from nki.isa.indirection import is_indirect, offsets_fault
from nki.target import Target


class ComputeInstruction(Instruction, abstract=True):
    """An instruction of a compute engine: its operands obey the access rules of the partitions."""

    def operators(self) -> Iterator[tuple[str, AluOp]]:
        """The ALU operators it was given, by parameter name."""
        for attribute in self.attributes:
            value = self.__dict__.get(attribute.name)
            if isinstance(value, AluOp):
                yield attribute.name, value

    def on_chip(self) -> Iterator[tuple[Operand, Access]]:
        """Its operands in SBUF and PSUM."""
        for operand, access in self.accesses():
            if access.memory.on_chip:
                yield operand, access

    def by_offsets(self) -> bool:
        """Whether an operand is a view by tensor indirection."""
        return any(is_indirect(access) for _, access in self.accesses())

    def both_in_psum(self, first: str, second: str) -> Fault | None:
        """The fault if both inputs of a two-input Vector instruction live in PSUM (semantics rule 53)."""
        a, b = self.__dict__[first], self.__dict__[second]
        if a.memory is not MemoryRegion.psum or b.memory is not MemoryRegion.psum:
            return None
        return Fault(
            operand=f"{first} and {second}",
            found=f"{a.describe()} and {b.describe()}",
            allowed="at most one of them in psum",
            remedy=f"copy one to SBUF first: nisa.tensor_copy(dst=tile, src={second})",
            error=errors.MemoryError_,
            text=f"`{first}` and `{second}` cannot both live in psum",
        )

    def non_integers(self) -> Fault | None:
        """The fault if an operand of a bit operator has no integer type (semantics rule 9)."""
        for operand, access in self.accesses():
            if not access.dtype.is_integer:
                return Fault(
                    operand=f"{operand.name}: {access.describe()}",
                    found=str(access.dtype),
                    allowed="an integer type",
                    remedy="view the tile as an integer type of the same width: tile.view(nl.uint32)",
                    error=errors.OperandDtypeError,
                    text=f"`{operand.name}` is {access.dtype}, but bit operators take integers only",
                )
        return None

    def unary_operand_given(self, op: str, operand: str) -> Fault | None:
        """The fault if a unary operator got an operand that is neither `None` nor 0 (semantics rule 89)."""
        operator, value = self.__dict__[op], self.__dict__[operand]
        if operator is None or operator.arity == 2:
            return None
        if value is None or (not isinstance(value, Access) and value == 0):
            return None
        return Fault(
            operand=operand,
            found=value.describe() if isinstance(value, Access) else value,
            allowed="None or 0",
            remedy=f"pass {operand}=None: nl.{operator.name} has one operand, the data",
            text=f"`{operand}` must be None or 0, as {op} = nl.{operator.name} takes one operand",
        )

    def binary_operand_missing(self, op: str, operand: str) -> Fault | None:
        """The fault if a binary operator got no operand."""
        operator, value = self.__dict__[op], self.__dict__[operand]
        if operator is None or operator.arity == 1 or value is not None:
            return None
        return Fault(
            operand=operand,
            found="None",
            allowed="a number or a column of one element per partition",
            remedy=f"pass {operand}=...",
            error=errors.ArgumentError,
            text=f"`{operand}` is missing, but {op} = nl.{operator.name} takes two operands",
        )

    def narrow_operand(self) -> Fault | None:
        """The fault if a column that must be float32 has another type (semantics rule 176)."""
        for operand, access in self.accesses():
            if operand.scalar and access.dtype is not dtypes.float32:
                return Fault(
                    operand=f"{operand.name}: {access.describe()}",
                    found=str(access.dtype),
                    allowed="float32",
                    remedy="copy the column into a float32 tile; the compiler for the chip refuses others",
                    text=f"`{operand.name}` should be float32, it is {access.dtype}",
                )
        return None

    @rule("an operator must exist on the generation (semantics rule 89)")
    def operators_exist(self, target: Target) -> Fault | None:
        for name, operator in self.operators():
            if operator.since > target.version:
                first = GENERATION_NAMES[operator.since.value]
                return Fault(
                    operand=name,
                    found=f"nl.{operator.name} on {target.name}",
                    allowed=f"{first} and later",
                    remedy=f"run with target='{first}' or build it of other operators",
                    error=errors.TargetError,
                    text=f"the operator `{operator.name}` does not exist on {target.name}",
                )
        return None

    @rule("an operand covers consecutive partitions, each once (semantics rules 35, 191)")
    def partitions_are_consecutive(self, target: Target) -> Fault | None:
        for operand, access in self.on_chip():
            if access.partitions > 1 and access.strides[0] != access.row:
                return Fault(
                    operand=f"{operand.name}: {access.describe()}",
                    found=f"a partition step of {access.strides[0]} elements",
                    allowed=f"{access.row}, the size of a partition of the tensor",
                    remedy="bring the partitions together with a DMA or nisa.nc_stream_shuffle first",
                )
        return None

    @rule("an operand starts at partition 0, a half or a quadrant (semantics rule 51)", severity="warning")
    def start_partition_is_legal(self, target: Target) -> Fault | None:
        for operand, access in self.on_chip():
            allowed = target.start_partitions(access.partitions)
            if access.start_partition not in allowed:
                return Fault(
                    operand=f"{operand.name}: {access.describe()}",
                    found=f"{access.partitions} partitions from partition {access.start_partition}",
                    allowed=f"a start at {', '.join(map(str, allowed))} for {access.partitions} partitions",
                    remedy="place the rows in a tile of their own with a DMA",
                )
        return None

    @rule("offsets of tensor indirection start where the data start (semantics rule 43)", severity="warning")
    def offsets_start_legally(self, target: Target) -> Fault | None:
        return offsets_fault(self, target)

    @rule("one instruction covers a limited part of a partition (semantics rule 182)", severity="warning")
    def free_size_is_legal(self, target: Target) -> Fault | None:
        for operand, access in self.on_chip():
            psum = access.memory is MemoryRegion.psum
            most = target.psum_elements_max if psum else target.sbuf_elements_max
            if access.free > most:
                return Fault(
                    operand=f"{operand.name}: {access.describe()}",
                    found=f"{access.free} elements per partition",
                    allowed=f"at most {most} in {access.memory}",
                    remedy="split the free dimension over several instructions",
                )
        return None


def conversion_fault(dst: Access, src: Access, name: str, *, remedy: str, why: str = "") -> Fault | None:
    """The fault if an instruction that converts nothing has another dtype in `dst` than in `src`, its operand `name`.

    why: what its message adds to the two dtypes.
    """
    if dst.dtype is src.dtype:
        return None
    return Fault(
        operand=f"dst: {dst.describe()}",
        found=f"{src.dtype} to {dst.dtype}",
        allowed=str(src.dtype),
        remedy=remedy,
        error=errors.OperandDtypeError,
        text=f"`dst` is {dst.dtype}, but `{name}` is {src.dtype}{why}",
    )
