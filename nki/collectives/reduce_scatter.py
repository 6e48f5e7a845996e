"""`nki.collectives.reduce_scatter`: every rank gets its block of the sum, minimum or maximum of all ranks."""

from __future__ import annotations

from nki.collectives.collective import REDUCTION
from nki.collectives.placement import BlockCollective
from nki.collectives.replica_group import REPLICA_GROUP
from nki.ir.operands import HBM_OR_SBUF, INTEGER, TEXT, UNPACKED, attribute, destination, optional, source
from nki.ir.program import Access, Shape
from nki.isa.export import instruction


@instruction
class reduce_scatter(BlockCollective):
    """dsts[i] = this rank's block of srcs[i] of all ranks, combined element by element with `op`.

    Blocks lie along dimension 0 in the order of the group. Several tensors at once only in HBM.
    Sources: nki.collectives.reduce_scatter; semantics rule 137.
    """

    srcs = source("*", HBM_OR_SBUF, UNPACKED, many=True, doc="what this rank contributes")
    dsts = destination("*", HBM_OR_SBUF, UNPACKED, many=True, doc="this rank's blocks of the results")
    replica_group = attribute(REPLICA_GROUP, doc="which ranks take part")
    collective_dim = attribute(INTEGER, doc="the dimension that is cut into blocks: 0")
    op = attribute(REDUCTION, doc="nl.add, nl.minimum or nl.maximum")
    priority = attribute(optional(INTEGER), None, doc="class of service of its DMAs, 0 first to 3 (trn3)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def wanted(self, src: Access) -> Shape | None:
        return self.cut(src)
