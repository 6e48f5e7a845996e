"""`nki.collectives.all_reduce`: every rank gets the sum, minimum or maximum of all ranks."""

from __future__ import annotations

from nki.collectives.collective import REDUCTION
from nki.collectives.placement import PlacedCollective
from nki.collectives.replica_group import REPLICA_GROUP
from nki.ir.operands import HBM_OR_SBUF, INTEGER, TEXT, UNPACKED, attribute, destination, optional, source
from nki.isa.export import instruction


@instruction
class all_reduce(PlacedCollective):
    """dsts[i] = srcs[i] of all ranks of the group, combined element by element with `op`.

    Several tensors may be reduced at once if they live in HBM. In a ring, data go round twice.
    Sources: nki.collectives.all_reduce; semantics rule 137.
    """

    srcs = source("*", HBM_OR_SBUF, UNPACKED, many=True, doc="what this rank contributes")
    dsts = destination("*", HBM_OR_SBUF, UNPACKED, many=True, doc="the results, shaped like `srcs`")
    replica_group = attribute(REPLICA_GROUP, doc="which ranks take part")
    op = attribute(REDUCTION, doc="nl.add, nl.minimum or nl.maximum")
    priority = attribute(optional(INTEGER), None, doc="class of service of its DMAs, 0 first to 3 (trn3)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def hops(self) -> int:
        return 2 * (self.ranks - 1)
