"""`nki.collectives.collective_permute_implicit_current_processing_rank_id`: whose data a step of a ring works on."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import errors
from nki.collectives.collective import OWN_RANK, other_ranks
from nki.collectives.replica_group import REPLICA_GROUP
from nki.collectives.ring import channel_fault, predecessor
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import INTEGER, TEXT, attribute, optional, register
from nki.ir.verify import Fault, rule
from nki.isa.costs import sequencer_phase
from nki.isa.export import instruction
from nki.target import Target


@instruction
class collective_permute_implicit_current_processing_rank_id(Instruction):
    """A register with the rank whose data are being worked on in step `iteration_id` of a ring: in step 0 the own
    rank, then its predecessors, one after the other.

    Sources: nki.collectives.collective_permute_implicit_current_processing_rank_id; semantics rule 139. That every
    channel runs the same way round is inferred. Cost: ESTIMATE (`register_move_ps`).
    """

    engines = (Engine.sync,)
    limits = {}
    namespace = "nki.collectives"
    creates = "dst"

    iteration_id: Any = attribute(INTEGER, doc="the step, from 0")
    replica_group: Any = attribute(REPLICA_GROUP, doc="the rings: each list of ranks is one")
    channel_id: Any = attribute(INTEGER, 0, doc="the channel, from 0")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")
    dst = register("out", default=None, doc="the new register, made by the call")

    @rule("steps and channels are counted from 0")
    def counts_from_zero(self, target: Target) -> Fault | None:
        for name in ("iteration_id", "channel_id"):
            value = self.__dict__[name]
            if value < 0:
                return Fault(name, value, "0, 1, 2, ...", f"pass {name}=0 first", errors.ArgumentError)
        return None

    @rule("a ring has up to 4 channels (semantics rule 139)")
    def channel_exists(self, target: Target) -> Fault | None:
        return channel_fault("channel_id", self.channel_id + 1, target.collective_channels_max)

    def resolve(self, builder: Any) -> None:
        fault = other_ranks(self.mnemonic, self.replica_group)
        if fault is not None:
            raise fault

    def semantics(self, a: Any) -> Steps:
        rank = predecessor(self.replica_group, OWN_RANK, self.iteration_id)
        yield np.copyto, (a.dst, np.full(1, rank, np.int32))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return (sequencer_phase(target, self.engine, target.register_move_ps, "register"),)
