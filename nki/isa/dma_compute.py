"""`nisa.dma_compute`: add tensors up while moving them, on the DMA engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import errors
from nki.enums import dge_mode as DgeMode
from nki.enums import engine as Engine
from nki.enums import oob_mode as OobMode
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import (
    BOOLEAN,
    HBM_OR_SBUF,
    TEXT,
    UNPACKED,
    attribute,
    destination,
    one_of,
    optional,
    source,
)
from nki.ir.verify import Fault, rule
from nki.isa.costs_dma import copy_transfer
from nki.isa.dma_rules import by_rows, by_scalar, index_column_fault
from nki.isa.export import instruction
from nki.isa.kinds import NUMBERS, operators
from nki.target import Target


@instruction
class dma_compute(Instruction):
    """dst = srcs[0] + srcs[1] + ...: up to 16 tensors of as many elements as `dst`, paired in row-major order.

    Sums are made in float32 from left to right and rounded once. `dst` itself may be one of `srcs`. One source alone is
    copied. `reduce_op` is nl.add and `scales` are all 1.0: the hardware knows nothing else yet.

    With an index per row (`vector_offset=` of `ap`) there are two sources. Gather: `dst` in SBUF is one of them, the
    other a tensor in HBM whose rows are chosen. Scatter: `dst` is an HBM tensor whose rows are chosen, the same view is
    one source and a tile in SBUF the other; a row named twice is an error while running, as one sum would be lost.
    Sources: nki.isa.dma_compute; semantics rules 16, 52, 101.
    """

    engines = (Engine.sync, Engine.gpsimd)
    limits = {}

    dst = destination("E", HBM_OR_SBUF, UNPACKED, rows=True, doc="the sum")
    srcs = source("E", HBM_OR_SBUF, UNPACKED, many=True, rows=True, doc="what to add up")
    reduce_op = attribute(operators("nl.add", lambda operator: operator.name == "add"), doc="nl.add")
    scales = attribute(optional(NUMBERS), None, doc="a factor for each source, 1.0 all of them")
    unique_indices = attribute(BOOLEAN, True, doc="no row is named twice by an index tensor")
    oob_mode = attribute(
        one_of(OobMode, "nisa.oob_mode"), OobMode.error, doc="what an index outside the tensor does"
    )
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    @rule("from 1 to 16 tensors are added (semantics rule 101)")
    def sources_are_few(self, target: Target) -> Fault | None:
        if len(self.srcs) <= target.dma_sources_max:
            return None
        return Fault(
            operand="srcs",
            found=f"{len(self.srcs)} tensors",
            allowed=f"at most {target.dma_sources_max}",
            remedy="add them up in several instructions, with dst among the sources",
            error=errors.LimitError,
        )

    @rule("`scales` has a 1.0 for each source (semantics rule 101)")
    def scales_are_one(self, target: Target) -> Fault | None:
        if self.scales is None or (len(self.scales) == len(self.srcs) and all(s == 1 for s in self.scales)):
            return None
        return Fault(
            operand="scales",
            found=list(self.scales),
            allowed=f"None or {[1.0] * len(self.srcs)}",
            remedy="scale a tile with nisa.tensor_scalar before",
        )

    def current_key(self) -> tuple[Any, ...]:
        """Legality also depends on which sources are `dst` itself."""
        return (*super().current_key(), tuple(src == self.dst for src in self.srcs))

    def by_index(self) -> bool:
        """Whether an index tensor chooses rows."""
        return any(by_rows(access) for _, access in self.accesses())

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        """Who makes the descriptors is not asked: GpSimd for gathers and scatters, else they are prepared."""
        if (engine is Engine.gpsimd) == self.by_index():
            return None
        return "descriptors of sums are prepared before the run, those of gathers and scatters made by GpSimd"

    def kept_if_skipped(self) -> dict[str, str]:
        names = [
            operand.name for operand, access in self.accesses() if not operand.is_output and by_rows(access)
        ]
        return dict.fromkeys(names, "dst") if self.oob_mode is OobMode.skip else {}

    def rows_named_once(self) -> bool:
        return True

    @rule("addresses are known beforehand, but for an index per row (semantics rule 101)")
    def places_are_fixed(self, target: Target) -> Fault | None:
        for operand, access in self.accesses():
            if by_scalar(access):
                return Fault(
                    operand=f"{operand.name}: {access.describe()}",
                    found="a view moved by a register or a tile",
                    allowed="a fixed place, or vector_offset",
                    remedy="move the elements into a tile first: nisa.dma_copy(dst=tile, src=view)",
                )
        return None

    @rule(
        "a gather adds HBM rows to a tile, a scatter a tile to HBM rows, with two sources (semantics rule 101)"
    )
    def rows_have_a_form(self, target: Target) -> Fault | None:
        if not self.by_index():
            return None
        others = [src for src in self.srcs if src != self.dst]
        if len(self.srcs) == 2 and len(others) == 1:
            gather = self.dst.memory.on_chip and by_rows(others[0])
            scatter = by_rows(self.dst) and others[0].memory.on_chip
            if gather or scatter:
                return None
        return Fault(
            operand="srcs",
            found=", ".join(
                f"{access.describe()}{' by rows' if by_rows(access) else ''}" for access in self.srcs
            ),
            allowed="[dst, rows of an HBM tensor] with dst in sbuf, or [dst, a tile] with dst = rows of an HBM tensor",
            remedy="use one and the same view as dst and as a source",
        )

    @rule("an index tensor has one index for each row (semantics rule 39)")
    def one_index_per_row(self, target: Target) -> Fault | None:
        return index_column_fault(self)

    @rule("`unique_indices` must be True with an index per row (semantics rule 101)")
    def indices_are_unique(self, target: Target) -> Fault | None:
        if self.unique_indices or not self.by_index():
            return None
        return Fault(
            operand="unique_indices",
            found=False,
            allowed=True,
            remedy="add up the rows that belong together first, and leave `unique_indices` out",
        )

    @rule("oob_mode.skip is for gathers and scatters (semantics rule 101)")
    def nothing_to_skip(self, target: Target) -> Fault | None:
        if self.oob_mode is not OobMode.skip or self.by_index():
            return None
        return Fault(
            operand="oob_mode",
            found="oob_mode.skip without an index",
            allowed="oob_mode.error: all addresses are known beforehand",
            remedy="leave `oob_mode` out",
        )

    def semantics(self, a: Any) -> Steps:
        first, *others = a.srcs
        if not others:
            yield np.copyto, (a.dst, first)
        for array in others:
            yield np.add, (first, array, a.dst)
            first = a.dst

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED for trn1 and trn2 (trainium3_arch.rst): half the copy rate. ESTIMATE: every source is moved."""
        mode = target.default_dge_indirect if self.by_index() else DgeMode.none
        efficiency = target.dma_accumulate_percent / 100 if len(self.srcs) > 1 else 1.0
        return tuple(
            Phase(0, kind="dma", transfer=copy_transfer(target, self.dst, src, mode, efficiency))
            for src in self.srcs
        )
