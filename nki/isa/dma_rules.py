"""What the instructions that move data by DMA have in common: who makes descriptors and who starts the transfer."""

from __future__ import annotations

from typing import Any

from nki import errors
from nki.enums import dge_mode as DgeMode
from nki.enums import engine as Engine
from nki.ir.instruction import Instruction
from nki.ir.program import Access
from nki.ir.verify import Fault, rule
from nki.target import Target

ISSUERS = {
    DgeMode.none: (Engine.sync,),
    DgeMode.swdge: (Engine.gpsimd,),
    DgeMode.hwdge: (Engine.sync, Engine.scalar),
}
"""Who starts a DMA, by who makes its descriptors: prepared rings the Sync engine, software GpSimd itself, the
hardware block whichever of the two sequencers is asked."""


def by_rows(access: Access) -> bool:
    """Whether an index tensor chooses the rows of a window."""
    return access.dynamic is not None and access.dynamic.kind == "vector"


def by_scalar(access: Access) -> bool:
    """Whether a register or a tile with one value moves a window."""
    return access.dynamic is not None and access.dynamic.kind == "scalar"


def index_column_fault(instruction: Instruction) -> Fault | None:
    """The fault if an index tensor is not one column with an index for each row (semantics rule 39)."""
    for operand, access in instruction.accesses():
        if access.dynamic is None or not by_rows(access):
            continue
        index = access.dynamic.index
        if isinstance(index, Access) and (index.partitions, index.free) != (access.shape[0], 1):
            return Fault(
                operand=f"{operand.name}: {access.describe()}",
                found=f"an index of shape {list(index.shape)} for {access.shape[0]} rows",
                allowed=f"({access.shape[0]}, 1): one index per partition",
                remedy="make the count of the first pair the number of indices",
                error=errors.OperandShapeError,
                text=f"`{operand.name}` has {access.shape[0]} rows, its index tensor has shape {list(index.shape)}",
            )
    return None


def priority_fault(priority: int | None, target: Target) -> Fault | None:
    """The fault if a class of service does not exist on the generation."""
    classes = target.dma_priorities
    if priority is None or (classes > 1 and 0 <= priority < classes):
        return None
    return Fault(
        "priority",
        found=f"{priority} on {target.name}",
        allowed=f"0 to {classes - 1} on {target.name}" if classes > 1 else f"None on {target.name}",
        remedy="leave `priority` out",
        error=errors.LimitError if classes > 1 else errors.TargetError,
    )


class DescriptorInstruction(Instruction, abstract=True):
    """A DMA with the parameters `dge_mode` (who makes the descriptors) and `priority` (class of service)."""

    limits = {}

    dge_mode: Any
    priority: Any

    def mode(self, target: Target) -> DgeMode:
        """Who makes the descriptors: as asked, or what is usual on this target."""
        raise NotImplementedError

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        if engine in ISSUERS[self.mode(target)]:
            return None
        return f"it does not start a DMA with dge_mode.{self.mode(target).name}"

    @rule("hardware descriptor generation does not exist on trn1")
    def hwdge_exists(self, target: Target) -> Fault | None:
        if self.dge_mode is not DgeMode.hwdge or target.hwdge:
            return None
        return Fault(
            "dge_mode",
            found=f"hwdge on {target.name}",
            allowed="none or swdge; hwdge on trn2 and later",
            remedy="leave `dge_mode` out, or run with target='trn2'",
            error=errors.TargetError,
        )

    @rule("the rows of a gather or a scatter are chosen by software descriptors (semantics rule 97)")
    def rows_need_software(self, target: Target) -> Fault | None:
        if self.dge_mode in (DgeMode.unknown, DgeMode.swdge):
            return None
        if not any(by_rows(access) for _, access in self.accesses()):
            return None
        return Fault(
            operand="dge_mode",
            found=f"dge_mode.{self.dge_mode.name} with an index per row",
            allowed="unknown or swdge",
            remedy="leave `dge_mode` out",
        )

    @rule("a dynamic address needs descriptors made while running (semantics rule 97)", severity="warning")
    def rings_are_static(self, target: Target) -> Fault | None:
        if self.dge_mode is not DgeMode.none or not any(by_scalar(access) for _, access in self.accesses()):
            return None
        return Fault(
            operand="dge_mode",
            found="dge_mode.none with a scalar_offset",
            allowed="swdge, or hwdge on trn2 and later (one table of the documentation allows none too)",
            remedy="leave `dge_mode` out",
        )

    @rule("gathers and scatters are documented from trn2 on (nki-dge.rst)", severity="warning")
    def rows_are_documented(self, target: Target) -> Fault | None:
        if target.hwdge or not any(by_rows(access) for _, access in self.accesses()):
            return None
        return Fault(
            operand="dst, src",
            found=f"an index per row on {target.name}",
            allowed="trn2 and later",
            remedy="run with target='trn2'",
        )

    @rule("`priority` is a class of service of trn3, from 0 to 3")
    def priority_exists(self, target: Target) -> Fault | None:
        return priority_fault(self.priority, target)
