"""What the instructions that move data by DMA have in common: who makes descriptors and who starts the transfer."""

from __future__ import annotations

from typing import Any

from nki import errors
from nki.enums import dge_mode as DgeMode
from nki.enums import engine as Engine
from nki.ir.instruction import Instruction
from nki.ir.verify import Fault, rule
from nki.target import Target

ISSUERS = {
    DgeMode.none: (Engine.sync,),
    DgeMode.swdge: (Engine.gpsimd,),
    DgeMode.hwdge: (Engine.sync, Engine.scalar),
}
"""Who starts a DMA, by who makes its descriptors: prepared rings the Sync engine, software GpSimd itself, the
hardware block whichever of the two sequencers is asked."""


def indexed_rows_fault(instruction: Instruction) -> Fault | None:
    """The fault if an operand's rows are chosen by an index tensor, for instructions that have no such form here."""
    for operand, access in instruction.accesses():
        if access.dynamic is not None and access.dynamic.kind == "vector":
            return Fault(
                operand=f"{operand.name}: {access.describe()}",
                found="a view with vector_offset",
                allowed="a fixed place, or one moved by a scalar_offset",
                remedy="gather the rows into a tile first: nisa.dma_copy(dst=tile, src=view)",
            )
    return None


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

    @rule("`priority` is a class of service of trn3, from 0 to 3")
    def priority_exists(self, target: Target) -> Fault | None:
        classes = target.dma_priorities
        if self.priority is None or (classes > 1 and 0 <= self.priority < classes):
            return None
        return Fault(
            "priority",
            found=f"{self.priority} on {target.name}",
            allowed=f"0 to {classes - 1} on {target.name}" if classes > 1 else f"None on {target.name}",
            remedy="leave `priority` out",
            error=errors.LimitError if classes > 1 else errors.TargetError,
        )
