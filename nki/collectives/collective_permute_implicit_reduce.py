"""`nki.collectives.collective_permute_implicit_reduce`: combine two tensors, and shift the result along a ring."""

from __future__ import annotations

from typing import Any

from nki import dtypes
from nki.collectives.collective import REDUCTION
from nki.collectives.replica_group import REPLICA_GROUP
from nki.collectives.ring import RingCollective, by_channel
from nki.ir.instruction import Steps
from nki.ir.operands import (
    HBM_OR_SBUF,
    INTEGER,
    INTEGERS_LIST,
    TEXT,
    UNPACKED,
    attribute,
    destination,
    optional,
    source,
)

NUMBERS = UNPACKED - {dtypes.bool_}


@by_channel
class collective_permute_implicit_reduce(RingCollective):
    """dsts_by_channel[c][0] = op(srcs0_by_channel[c][0], srcs1_by_channel[c][0]) of the predecessor in the ring.

    Floats are combined in float32 and rounded once; integers exactly, wrapping around (both inferred).
    Sources: nki.collectives.collective_permute_implicit_reduce; semantics rules 137, 139.
    """

    sends = ("srcs0_by_channel", "srcs1_by_channel")

    srcs0_by_channel = source("*", HBM_OR_SBUF, NUMBERS, many=True, doc="[left operand] for each channel")
    srcs1_by_channel = source("*", HBM_OR_SBUF, NUMBERS, many=True, doc="[right operand] for each channel")
    dsts_by_channel = destination(
        "*", HBM_OR_SBUF, NUMBERS, many=True, doc="[tensor that receives] for each channel"
    )
    replica_group = attribute(REPLICA_GROUP, doc="the rings: each list of ranks is one")
    op: Any = attribute(REDUCTION, doc="nl.add, nl.minimum or nl.maximum")
    channel_ids = attribute(INTEGERS_LIST, (0,), doc="the channels: 0, 1, ...")
    priority = attribute(optional(INTEGER), None, doc="class of service of its DMAs, 0 first to 3 (trn3)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "float32" if self.srcs0_by_channel[0].dtype.is_float else "raw"

    def semantics(self, a: Any) -> Steps:
        for left, right, dst in zip(a.srcs0_by_channel, a.srcs1_by_channel, a.dsts_by_channel):
            yield self.op.function, (left, right, dst)
