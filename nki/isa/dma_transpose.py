"""`nisa.dma_transpose`: transpose while moving, on the DMA engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import errors
from nki.enums import dge_mode as DgeMode
from nki.enums import engine as Engine
from nki.enums import oob_mode as OobMode
from nki.ir.builder import Builder
from nki.ir.cost import Phase, Transfer
from nki.ir.instruction import Steps
from nki.ir.operands import (
    ANY_DTYPE,
    HBM_OR_SBUF,
    INTEGER,
    INTEGERS_LIST,
    TEXT,
    attribute,
    destination,
    one_of,
    optional,
    source,
)
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array, bits
from nki.isa.costs_dma import contiguous_run, copy_phases
from nki.isa.dma_rules import DescriptorInstruction, by_rows
from nki.isa.export import instruction
from nki.isa.gather_transpose import gather_fault
from nki.target import Target

AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""The permutation of each rank: the first and the last axis change places."""

HALF_WORD = 2  # bytes of the elements that the descriptor hardware transposes
TRANSPOSED_BYTES = (2, 4)
"""Sizes of element that the DMA engines transpose by themselves (trainium2_arch.rst)."""


@instruction
class dma_transpose(DescriptorInstruction):
    """dst = src with its first and last axes exchanged: (1, 0) of two axes, (2, 1, 0) of three, (3, 1, 2, 0) of four.

    `dst` has exactly the permuted shape of `src`, rank included, and its dtype; bits are moved. `axes` may be left out.
    `dge_mode` is `none` (rings prepared before the run) or `hwdge` (trn2 and later), which takes 2-byte elements, at
    most 128 of them in the last axis, and whole groups of 16 rows: shape[0] = 16 of two axes; else shape[0] in 1, 2, 4,
    8, 16 and shape[0] * shape[-2] a multiple of 16. `unknown` becomes hwdge where that is legal. `priority` is a class
    of service and changes no value.

    Rows of an HBM tensor may be chosen by an index tensor (`vector_offset=` of `ap`), from trn2 on: row i is the one
    that the i-th index names, column after column of the index tile; `dst` is the transpose of these rows. With
    `oob_mode.skip` the columns of `dst` whose index lies outside keep their bytes.
    Sources: nki.isa.dma_transpose; nki-dge.rst; trainium2_arch.rst (DMA Transpose); semantics rules 96-100, 102.
    """

    engines = (Engine.sync, Engine.scalar, Engine.gpsimd)
    layout = "declared"

    dst = destination("E", HBM_OR_SBUF, ANY_DTYPE, doc="the transpose")
    src = source("E", HBM_OR_SBUF, ANY_DTYPE, rows=True, doc="what to transpose, of two to four axes")
    axes = attribute(optional(INTEGERS_LIST), None, doc="(1, 0), (2, 1, 0) or (3, 1, 2, 0)")
    priority = attribute(optional(INTEGER), None, doc="class of service, 0 (first) to 3, on trn3")
    dge_mode = attribute(one_of(DgeMode, "nisa.dge_mode"), DgeMode.unknown, doc="who makes the descriptors")
    oob_mode = attribute(
        one_of(OobMode, "nisa.oob_mode"), OobMode.error, doc="what an index outside the tensor does"
    )
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def mode(self, target: Target) -> DgeMode:
        """As asked, or hardware descriptors where they can do it."""
        if self.dge_mode is not DgeMode.unknown:
            asked: DgeMode = self.dge_mode
            return asked
        if by_rows(self.src):
            return target.default_dge_indirect
        able = target.hwdge and len(self.src.shape) in AXES and self._hardware_fault(target) is None
        return DgeMode.hwdge if able else DgeMode.none

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        # swdge is refused by a rule, which says more.
        if self.dge_mode is DgeMode.swdge and not by_rows(self.src):
            return None
        return super().engine_fault(engine, target)

    def kept_if_skipped(self) -> dict[str, str]:
        return {"src": "dst"} if self.oob_mode is OobMode.skip else {}

    def written_where(self, fetched: Any) -> Any:
        return fetched.transpose(self.permutation())

    def permutation(self) -> tuple[int, ...]:
        """The axes of `src`, in the order in which `dst` has them."""
        return AXES[len(self.src.shape)]

    @rule("`src` has two to four axes")
    def rank_is_legal(self, target: Target) -> Fault | None:
        if len(self.src.shape) in AXES:
            return None
        return Fault(
            operand=f"src: {self.src.describe()}",
            found=f"{len(self.src.shape)} axes",
            allowed="2, 3 or 4",
            remedy="merge or split axes with reshape",
            error=errors.OperandShapeError,
        )

    @rule("`axes` are (1, 0), (2, 1, 0) or (3, 1, 2, 0) (semantics rule 98)")
    def axes_are_legal(self, target: Target) -> Fault | None:
        if self.axes is None or self.axes == self.permutation():
            return None
        return Fault(
            operand="axes",
            found=self.axes,
            allowed=f"{self.permutation()} for {self.src.describe()}",
            remedy="leave `axes` out, and permute a view of `src` or `dst` for other orders",
            error=errors.OperandShapeError,
        )

    @rule("`dst` has the permuted shape of `src`, rank included (semantics rule 98)")
    def shape_is_permuted(self, target: Target) -> Fault | None:
        wanted = tuple(self.src.shape[axis] for axis in self.permutation())
        if self.dst.shape == wanted:
            return None
        return Fault(
            operand=f"dst: {self.dst.describe()}",
            found=f"shape {list(self.dst.shape)}",
            allowed=f"{list(wanted)}, the axes {self.permutation()} of {self.src.describe()}",
            remedy=f"allocate or reshape dst as {wanted}",
            error=errors.OperandShapeError,
            text=f"`dst` has shape {list(self.dst.shape)}, the transpose has {list(wanted)}",
        )

    @rule("a transpose does not convert: `dst` and `src` have one dtype")
    def dtypes_agree(self, target: Target) -> Fault | None:
        if self.dst.dtype is self.src.dtype:
            return None
        return Fault(
            operand=f"dst: {self.dst.describe()}",
            found=f"{self.src.dtype} to {self.dst.dtype}",
            allowed=str(self.src.dtype),
            remedy="transpose first and convert with nisa.tensor_copy",
            error=errors.OperandDtypeError,
        )

    @rule("software descriptors are for transposes of gathered rows (semantics rule 97)")
    def no_software_descriptors(self, target: Target) -> Fault | None:
        if self.dge_mode is not DgeMode.swdge or by_rows(self.src):
            return None
        return Fault(
            operand="dge_mode",
            found="swdge without an index",
            allowed="unknown, none or hwdge",
            remedy="leave `dge_mode` out",
        )

    @rule("hwdge transposes 2-byte elements in groups of 16 rows (semantics rule 100)")
    def hardware_can(self, target: Target) -> Fault | None:
        return self._hardware_fault(target) if self.dge_mode is DgeMode.hwdge else None

    def _hardware_fault(self, target: Target) -> Fault | None:
        shape, rows = self.src.shape, target.dma_engines
        powers = [n for n in range(1, rows + 1) if rows % n == 0]
        if self.src.dtype.itemsize != HALF_WORD:
            found, allowed = str(self.src.dtype), "a dtype of 2 bytes"
        elif shape[-1] > target.pmax:
            found, allowed = f"a last axis of {shape[-1]}", f"at most {target.pmax}"
        elif len(shape) == 2 and shape[0] != rows:
            found, allowed = f"{shape[0]} rows", f"{rows} rows"
        elif len(shape) > 2 and shape[0] not in powers:
            found, allowed = f"a first axis of {shape[0]}", ", ".join(map(str, powers))
        elif shape[0] * shape[-2] % rows:
            found, allowed = f"shape[0] * shape[-2] = {shape[0] * shape[-2]}", f"a multiple of {rows}"
        else:
            return None
        remedy = "leave `dge_mode` out, or transpose in pieces of that size"
        return Fault(f"src: {self.src.describe()}", found, allowed, remedy)

    @rule(
        "gathered rows are transposed in groups of 16, 2-byte elements, from HBM, on trn2 (semantics rule 99)"
    )
    def rows_can_be_gathered(self, target: Target) -> Fault | None:
        return gather_fault(self.src, target)

    @rule("oob_mode.skip is for transposes of gathered rows (semantics rule 99)")
    def nothing_to_skip(self, target: Target) -> Fault | None:
        if self.oob_mode is not OobMode.skip or by_rows(self.src):
            return None
        return Fault(
            operand="oob_mode",
            found="oob_mode.skip without an index",
            allowed="oob_mode.error: all addresses are known beforehand",
            remedy="leave `oob_mode` out",
        )

    def resolve(self, builder: Builder) -> None:
        self.dge_mode = self.mode(builder.target)

    def semantics(self, a: Any) -> Steps:
        yield copy_transposed, (bits(a.dst), bits(a.src), self.permutation())

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED for trn2 (trainium2_arch.rst): 90 % of the copy rate from HBM, 50 % from SBUF, at best.

        ESTIMATE: what does not fill the blocks of 128 partitions by 16 columns takes the time of full ones, and
        elements of another size than 2 or 4 bytes are copied one by one.
        """
        src = self.src
        if src.dtype.itemsize not in TRANSPOSED_BYTES:
            order = self.permutation()
            shape, strides = (_permuted(side, order) for side in (src.shape, src.strides))
            turned = Access(src.buffer, src.dtype, src.offset, shape, strides)
            return copy_phases(target, self.dst, turned, self.mode(target))
        percent = target.dma_transpose_hbm_percent if src.memory.is_hbm else target.dma_transpose_sbuf_percent
        columns, partitions = src.shape[0], src.shape[-1]
        filled = 1.0
        for size, block in ((partitions, target.pmax), (columns, target.dma_engines)):
            filled *= size / (-(-size // block) * block)
        run = contiguous_run(src)
        transfer = Transfer(
            src.size // run, run * src.dtype.itemsize, self.mode(target), percent / 100 * filled
        )
        return (Phase(0, kind="dma", transfer=transfer),)


def _permuted(side: Shape, order: tuple[int, ...]) -> Shape:
    return tuple(side[axis] for axis in order)


def copy_transposed(dst: Array, src: Array, order: tuple[int, ...]) -> None:
    """Copy `src` with its axes in another order."""
    np.copyto(dst, src.transpose(order))


copy_transposed.reads_first = True  # type: ignore[attr-defined]  # np.copyto minds overlapping operands
