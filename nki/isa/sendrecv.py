"""`nisa.sendrecv`: the two cores of a logical core exchange a tile."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from nki import errors
from nki.enums import dge_mode, nc_version
from nki.enums import dma_engine as DmaEngine
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.effects import RENDEZVOUS, meet
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import ANY_DTYPE, INTEGER, SBUF, TEXT, attribute, destination, one_of, optional, source
from nki.ir.verify import Fault, rule
from nki.isa.costs_dma import copy_phases
from nki.isa.export import instruction
from nki.isa.meeting import cores_fault
from nki.target import Target


@instruction
class sendrecv(Instruction):
    """Each core gives its `src` to the other one and receives the other's `src` in its `dst`, at the same time.

    Calls with one `pipe_id` pair up in program order on both cores. `dma_engine.gpsimd_dma` is the quick way for small
    tiles (at most 1024, 512 or 256 bytes a partition for 4, 2 or 1-byte types). The launch must be `kernel[2]`, on
    trn2 or later.
    Sources: nki.isa.sendrecv; semantics rule 134. Cost: as a DMA between SBUF tiles (ESTIMATE).
    """

    since = nc_version.gen3
    effects = (RENDEZVOUS,)
    engines = (Engine.sync, Engine.gpsimd)
    layout = "declared"

    src = source("P F", SBUF, ANY_DTYPE, doc="the tile this core gives")
    dst = destination("P F", SBUF, ANY_DTYPE, doc="receives the other core's tile")
    send_to_rank = attribute(INTEGER, doc="the core it goes to")
    recv_from_rank = attribute(INTEGER, doc="the core it comes from")
    pipe_id = attribute(INTEGER, doc="calls with one pipe_id pair up in program order")
    dma_engine = attribute(
        one_of(DmaEngine, "nisa.dma_engine"), DmaEngine.dma, doc="which DMA moves the data"
    )
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        quick = self.dma_engine is DmaEngine.gpsimd_dma
        return None if (engine is Engine.gpsimd) == quick else "the DMA is started elsewhere"

    @rule("`src` and `dst` have one shape")
    def shapes_agree(self, target: Target) -> Fault | None:
        if self.src.shape == self.dst.shape:
            return None
        return Fault(
            "src, dst",
            found=f"{self.src.describe()} and {self.dst.describe()}",
            allowed="equal shapes",
            remedy="reshape one of them",
            error=errors.OperandShapeError,
        )

    @rule("`src` and `dst` have one dtype")
    def dtypes_agree(self, target: Target) -> Fault | None:
        if self.src.dtype == self.dst.dtype:
            return None
        return Fault(
            "src, dst",
            found=f"{self.src.describe()} and {self.dst.describe()}",
            allowed="equal dtypes",
            remedy="exchange into a tile like `src` and convert afterwards with nisa.tensor_copy",
            error=errors.OperandDtypeError,
        )

    @rule("ranks are 0 or 1")
    def ranks_exist(self, target: Target) -> Fault | None:
        if self.send_to_rank in (0, 1) and self.recv_from_rank in (0, 1):
            return None
        return Fault(
            "send_to_rank, recv_from_rank",
            found=f"{self.send_to_rank}, {self.recv_from_rank}",
            allowed="0 or 1",
            remedy="pass 1 - nl.program_id(0)",
            error=errors.ArgumentError,
        )

    @rule("the GpSimd DMA takes small tiles only (semantics rule 134)")
    def quick_is_small(self, target: Target) -> Fault | None:
        most = target.gpsimd_dma_elements_max
        if self.dma_engine is not DmaEngine.gpsimd_dma or self.src.free <= most:
            return None
        width = self.src.dtype.itemsize
        return Fault(
            "src",
            found=f"{self.src.free * width} bytes a partition",
            allowed=f"at most {most * width} bytes for {self.src.dtype}",
            remedy="split the tile, or use nisa.dma_engine.dma",
            error=errors.LimitError,
        )

    def resolve(self, builder: Any) -> None:
        fault = cores_fault(builder.grid)
        if fault is not None:
            raise fault
        if {self.send_to_rank, self.recv_from_rank} != {1 - builder.core}:
            raise errors.ArgumentError(
                f"sendrecv: core {builder.core} can exchange with core {1 - builder.core} only",
                operand="send_to_rank, recv_from_rank",
                found=f"{self.send_to_rank}, {self.recv_from_rank}",
                allowed=f"{1 - builder.core} for both",
                remedy="pass 1 - nl.program_id(0) for both ranks; copy within a core with nisa.tensor_copy",
            )

    def meeting(self) -> Hashable:
        return "pipe", self.pipe_id

    def semantics(self, a: Any) -> Steps:
        yield meet, (self.meeting(), a.src, a.dst, self)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return copy_phases(target, self.dst, self.src, dge_mode.swdge)
