"""`nisa.core_barrier`: both cores of a logical core wait for each other."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from nki import errors
from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.ir.cost import Phase
from nki.ir.effects import RENDEZVOUS, meet
from nki.ir.instruction import Instruction, Steps, engine_choice
from nki.ir.operands import ANY_DTYPE, INTEGERS_LIST, SHARED_HBM, TEXT, attribute, optional, source
from nki.ir.verify import Fault, rule
from nki.isa.export import instruction
from nki.isa.meeting import cores_fault
from nki.target import Target


@instruction
class core_barrier(Instruction):
    """Wait until the other core has come to its barrier; what both wrote to `data` before is then visible to both.

    `data` is the tensor in shared HBM that the cores synchronise on. Only the named engine waits. The launch must be
    `kernel[2]`, on trn2 or later.
    Sources: nki.isa.core_barrier; semantics rule 133. Cost: ESTIMATE (see `core_barrier_ps`).
    """

    since = nc_version.gen3
    effects = (RENDEZVOUS,)
    unbound = ("data",)
    limits = {}

    data = source("E", SHARED_HBM, ANY_DTYPE, doc="the shared tensor both cores use")
    cores = attribute(INTEGERS_LIST, doc="the cores that meet: (0, 1)")
    engine = engine_choice(
        Engine.gpsimd, Engine.sync, Engine.scalar, Engine.vector, Engine.tensor, default=Engine.gpsimd
    )
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def reads(self) -> list[Any]:
        return []

    @rule("`cores` is (0, 1)")
    def both_cores(self, target: Target) -> Fault | None:
        if tuple(self.cores) == (0, 1):
            return None
        return Fault(
            "cores",
            found=tuple(self.cores),
            allowed="(0, 1)",
            remedy="pass cores=(0, 1)",
            error=errors.ArgumentError,
        )

    def resolve(self, builder: Any) -> None:
        fault = cores_fault(builder.grid)
        if fault is not None:
            raise fault

    def meeting(self) -> Hashable:
        return ("barrier",)

    def semantics(self, a: Any) -> Steps:
        yield meet, (self.meeting(), None, None, self)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        cycles = -(-target.core_barrier_ps * target.clock_mhz(self.engine) // 1_000_000)
        return (Phase(cycles, kind="barrier"),)
