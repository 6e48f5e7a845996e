"""`nisa.dma_copy`: move data between HBM and SBUF on the DMA engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import errors
from nki.enums import dge_mode as DgeMode
from nki.enums import engine as Engine
from nki.enums import oob_mode as OobMode
from nki.ir.builder import Builder
from nki.ir.cost import Phase
from nki.ir.instruction import Steps, engine_choice
from nki.ir.operands import (
    ANY_DTYPE,
    HBM_OR_SBUF,
    INTEGER,
    TEXT,
    attribute,
    destination,
    one_of,
    optional,
    source,
)
from nki.ir.verify import Fault, rule
from nki.isa.costs_dma import copy_phases
from nki.isa.dma_rules import ISSUERS, DescriptorInstruction, by_rows, by_scalar, index_column_fault
from nki.isa.export import instruction
from nki.target import Target


@instruction
class dma_copy(DescriptorInstruction):
    """dst = src: copy as many elements as both windows have, paired in row-major order; shapes may differ.

    Equal dtypes are copied bit by bit; different ones go through float32 with one rounding. `dge_mode` says who makes
    the descriptors: `none` (rings prepared before the run), `swdge` (GpSimd), `hwdge` (a hardware block, from trn2,
    asked by the Sync or the Scalar engine, equal dtypes only); `unknown` becomes the target's usual choice at staging.
    `priority` is a class of service and changes no value.

    Either side may have a dynamic place: moved as a whole by a register or a tile with one value (`scalar_offset=` of
    `ap`, `select`), or row by row by an index tensor (`vector_offset=`, `vector_select`: gather and scatter, with
    software descriptors). An index outside the tensor is an error while running, or with `oob_mode.skip` its transfer
    is dropped and the destination keeps its bytes. Rows that a scatter names twice get the last one.
    Sources: nki.isa.dma_copy; nki-dge.rst; nki-aps.rst; semantics rules 16, 17, 39, 52, 94-97, 102, 181.
    """

    dst = destination("E", HBM_OR_SBUF, ANY_DTYPE, rows=True, doc="where to copy to")
    src = source("E", HBM_OR_SBUF, ANY_DTYPE, rows=True, doc="what to copy")
    priority = attribute(optional(INTEGER), None, doc="class of service, 0 (first) to 3, on trn3")
    oob_mode = attribute(
        one_of(OobMode, "nisa.oob_mode"), OobMode.error, doc="what a dynamic index outside the tensor does"
    )
    dge_mode = attribute(one_of(DgeMode, "nisa.dge_mode"), DgeMode.unknown, doc="who makes the descriptors")
    engine = engine_choice(Engine.sync, Engine.scalar, Engine.gpsimd)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw" if self.dst.dtype == self.src.dtype else "float32"

    def mode(self, target: Target) -> DgeMode:
        """Who makes the descriptors: as asked, or what is usual on this target."""
        if self.dge_mode is not DgeMode.unknown:
            asked: DgeMode = self.dge_mode
            return asked
        if by_rows(self.dst) or by_rows(self.src):
            return target.default_dge_indirect
        if by_scalar(self.dst) or by_scalar(self.src):
            return target.default_dge_dynamic
        if self.dst.dtype != self.src.dtype:
            return target.default_dge_cast
        return target.default_dge_static

    def kept_if_skipped(self) -> dict[str, str]:
        return {"src": "dst"} if self.oob_mode is OobMode.skip else {}

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        return None if self.engine is not Engine.unknown else super().engine_fault(engine, target)

    @rule(
        "`engine` says who asks the hardware for descriptors: sync or scalar, with dge_mode=nisa.dge_mode.hwdge"
    )
    def engine_is_for_hwdge(self, target: Target) -> Fault | None:
        # A printed program names the issuer of every mode, so an engine that a mode implies is let through.
        if self.engine is Engine.unknown or self.engine in ISSUERS.get(self.dge_mode, ()):
            return None
        return Fault(
            "engine",
            found=f"engine.{self.engine.name} with dge_mode.{self.dge_mode.name}",
            allowed="engine.sync or engine.scalar with dge_mode.hwdge",
            remedy="pass dge_mode=nisa.dge_mode.hwdge too (trn2 and later), or leave `engine` out",
            error=errors.EngineError,
        )

    @rule("hwdge does not convert: `dst` and `src` must have one dtype")
    def hwdge_converts_nothing(self, target: Target) -> Fault | None:
        if self.dge_mode is not DgeMode.hwdge or self.dst.dtype == self.src.dtype:
            return None
        return Fault(
            "dst, src",
            found=f"{self.src.dtype} to {self.dst.dtype}",
            allowed="equal dtypes",
            remedy="use another dge_mode, or reinterpret one side with .view(dtype)",
            error=errors.OperandDtypeError,
        )

    @rule("packed dtypes are moved, never converted")
    def packed_is_raw(self, target: Target) -> Fault | None:
        if self.dst.dtype == self.src.dtype or "packed" not in (self.dst.dtype.kind, self.src.dtype.kind):
            return None
        return Fault(
            "dst, src",
            found=f"{self.src.dtype} to {self.dst.dtype}",
            allowed="equal dtypes",
            remedy="reinterpret one side with .view(dtype)",
            error=errors.OperandDtypeError,
        )

    @rule("an index tensor has one index for each row (semantics rule 39)")
    def one_index_per_row(self, target: Target) -> Fault | None:
        return index_column_fault(self)

    def resolve(self, builder: Builder) -> None:
        self.dge_mode = self.mode(builder.target)

    def semantics(self, a: Any) -> Steps:
        yield np.copyto, (a.dst, a.src)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return copy_phases(target, self.dst, self.src, self.mode(target))
