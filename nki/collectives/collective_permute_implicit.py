"""`nki.collectives.collective_permute_implicit`: shift tensors one place along a ring of ranks."""

from __future__ import annotations

from nki.collectives.replica_group import REPLICA_GROUP
from nki.collectives.ring import RingCollective, by_channel
from nki.ir.operands import (
    ANY_DTYPE,
    HBM_OR_SBUF,
    INTEGER,
    INTEGERS_LIST,
    TEXT,
    attribute,
    destination,
    optional,
    source,
)


@by_channel
class collective_permute_implicit(RingCollective):
    """dsts_by_channel[c][0] = srcs_by_channel[c][0] of the predecessor in the ring; each rank sends to its successor.

    Channels move data at the same time. `collective_permute_implicit_current_processing_rank_id` says whose data
    have come. There are up to 4 channels if the group has all devices of a node, else 2.
    Sources: nki.collectives.collective_permute_implicit; semantics rules 137, 139.
    """

    sends = ("srcs_by_channel",)

    srcs_by_channel = source("*", HBM_OR_SBUF, ANY_DTYPE, many=True, doc="[tensor to send] for each channel")
    dsts_by_channel = destination(
        "*", HBM_OR_SBUF, ANY_DTYPE, many=True, doc="[tensor that receives] for each channel"
    )
    replica_group = attribute(REPLICA_GROUP, doc="the rings: each list of ranks is one")
    channel_ids = attribute(INTEGERS_LIST, (0,), doc="the channels: 0, 1, ...")
    priority = attribute(optional(INTEGER), None, doc="class of service of its DMAs, 0 first to 3 (trn3)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")
