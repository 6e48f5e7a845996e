"""`nisa.nc_stream_shuffle`: move partitions within each quadrant of 32."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import (
    ANY_DTYPE,
    INTEGERS_LIST,
    ON_CHIP,
    TEXT,
    attribute,
    destination,
    optional,
    source,
)
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.isa.apply import Array, bits
from nki.isa.compute import ComputeInstruction, conversion_fault
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.target import Target

UNMODIFIED = 255  # entry of the mask that leaves a partition of dst alone


@instruction
class nc_stream_shuffle(ComputeInstruction):
    """dst[32 q + i, F] = src[32 q + shuffle_mask[i], F] in every quadrant q; 255 leaves that partition of `dst` alone.

    The mask has 32 entries and serves each quadrant of 32 partitions alike, counted from the first partition of either
    tile; the two may lie in different quadrants. Elements move bit by bit; `dst` may be `src`. `src` needs only the
    partitions that are read: one partition, with a mask of zeros, is copied to 32.
    Sources: nki.isa.nc_stream_shuffle; trainium_inferentia2_arch.rst (32 partition shuffle); semantics rules 51, 113.
    """

    engines = (Engine.vector,)
    layout = "declared"

    dst = destination("Q F", ON_CHIP, ANY_DTYPE, reads=True, doc="where the partitions go")
    src = source("P F", ON_CHIP, ANY_DTYPE, doc="where they come from")
    shuffle_mask = attribute(INTEGERS_LIST, doc="32 partition numbers, 0 to 31 or 255")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {"dst": (self.dst.partitions, self.dst.free), "src": (self.src.partitions, self.src.free)}

    def reads(self) -> list[Access]:
        return super().reads() if UNMODIFIED in self.shuffle_mask else [self.src]

    def _moves(self) -> tuple[list[int], list[int]]:
        """Partitions of `dst` that are written, and the partitions of `src` they come from."""
        size = len(self.shuffle_mask)
        written, read = [], []
        for partition in range(self.dst.partitions):
            entry = self.shuffle_mask[partition % size]
            if entry != UNMODIFIED:
                written.append(partition)
                read.append(partition - partition % size + entry)
        return written, read

    @rule("`shuffle_mask` has 32 entries, each 0 to 31 or 255 (semantics rule 113)")
    def mask_is_complete(self, target: Target) -> Fault | None:
        size = target.quadrant_partitions
        wrong = [e for e in self.shuffle_mask if not (0 <= e < size or e == UNMODIFIED)]
        if len(self.shuffle_mask) == size and not wrong:
            return None
        return Fault(
            operand="shuffle_mask",
            found=f"the entry {wrong[0]}" if wrong else f"{len(self.shuffle_mask)} entries",
            allowed=f"{size} entries, each 0 to {size - 1} or {UNMODIFIED}",
            remedy=f"repeat or pad the mask: [0] * {size} broadcasts partition 0, {UNMODIFIED} skips a partition",
        )

    @rule("the mask reads partitions that `src` has")
    def source_is_complete(self, target: Target) -> Fault | None:
        most = max(self._moves()[1], default=0)
        if most < self.src.partitions:
            return None
        return Fault(
            operand=f"src: {self.src.describe()}",
            found=f"{self.src.partitions} partitions, partition {most} is read",
            allowed=f"at least {most + 1} partitions",
            remedy="each quadrant reads its own 32 partitions of `src`: shuffle one quadrant of `dst` at a time",
            text=f"the mask reads partition {most} of `src`, which has {self.src.partitions}",
        )

    @rule("`dst` and `src` have one dtype (semantics rule 113)")
    def dtypes_agree(self, target: Target) -> Fault | None:
        remedy = "shuffle first and convert with nisa.tensor_copy"
        return conversion_fault(self.dst, self.src, "src", remedy=remedy)

    @rule("both tiles start at partition 0, a half or a quadrant (semantics rule 113)")
    def start_partition_is_legal(self, target: Target) -> Fault | None:
        most = max(self.dst.partitions, self.src.partitions)
        allowed = target.start_partitions(most)
        for name, access in (("dst", self.dst), ("src", self.src)):
            if access.start_partition not in allowed:
                return Fault(
                    operand=f"{name}: {access.describe()}",
                    found=f"a start at partition {access.start_partition}",
                    allowed=f"a start at {', '.join(map(str, allowed))} for {most} partitions",
                    remedy="start at the quadrant and let the mask choose the partition",
                    text=f"`{name}` starts at partition {access.start_partition}",
                )
        return None

    def semantics(self, a: Any) -> Steps:
        written, read = (np.array(side, np.intp) for side in self._moves())
        moved = a.scratch((len(read), self.src.free), f"u{self.src.dtype.itemsize}")
        yield np.take, (bits(a.src), read, 0, moved, "clip")
        if len(written) == self.dst.partitions:
            yield np.copyto, (bits(a.dst), moved)
        else:
            yield _scatter, (bits(a.dst), written, moved)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """PUBLISHED (SDK 2.26 API text): an element per cycle."""
        cycles = stream_cycles(target, (self.src, self.dst))
        return (streaming_phase(target, self.engine, cycles, (self.src, self.dst)),)


def _scatter(rows: Array, written: Array, moved: Array) -> None:
    rows[written] = moved
