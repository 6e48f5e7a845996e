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
from nki.isa.dma_rules import indexed_rows_fault
from nki.isa.export import instruction
from nki.isa.kinds import NUMBERS, operators
from nki.target import Target


@instruction
class dma_compute(Instruction):
    """dst = srcs[0] + srcs[1] + ...: up to 16 tensors of as many elements as `dst`, paired in row-major order.

    Sums are made in float32 from left to right and rounded once. `dst` itself may be one of `srcs`. One source alone is
    copied. `reduce_op` is nl.add and `scales` are all 1.0: the hardware knows nothing else yet.
    Sources: nki.isa.dma_compute; semantics rules 16, 52, 101.
    """

    engines = (Engine.sync,)
    limits = {}

    dst = destination("E", HBM_OR_SBUF, UNPACKED, doc="the sum")
    srcs = source("E", HBM_OR_SBUF, UNPACKED, many=True, doc="what to add up")
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

    @rule("rows chosen by an index tensor are not supported yet (semantics rule 101)")
    def rows_are_fixed(self, target: Target) -> Fault | None:
        return indexed_rows_fault(self)

    @rule("oob_mode.skip is for gathers and scatters (semantics rule 101)")
    def nothing_to_skip(self, target: Target) -> Fault | None:
        if self.oob_mode is not OobMode.skip or self.is_dynamic:
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
        efficiency = target.dma_accumulate_percent / 100 if len(self.srcs) > 1 else 1.0
        return tuple(
            Phase(0, kind="dma", transfer=copy_transfer(target, self.dst, src, DgeMode.none, efficiency))
            for src in self.srcs
        )
