"""`nki.collectives.all_to_all`: every rank gives each rank a block, and gets one of each."""

from __future__ import annotations

from nki.collectives.placement import BlockCollective
from nki.collectives.replica_group import REPLICA_GROUP
from nki.ir.operands import ANY_DTYPE, HBM, INTEGER, TEXT, attribute, destination, optional, source
from nki.ir.program import Access, Shape
from nki.isa.export import instruction


@instruction
class all_to_all(BlockCollective):
    """Block j of dsts[i] = this rank's block of srcs[i] of rank j of the group; blocks lie along dimension 0.

    All tensors live in HBM; several may be exchanged at once.
    Sources: nki.collectives.all_to_all; semantics rule 137.
    """

    srcs = source("*", HBM, ANY_DTYPE, many=True, doc="a block for each rank")
    dsts = destination("*", HBM, ANY_DTYPE, many=True, doc="a block of each rank")
    replica_group = attribute(REPLICA_GROUP, doc="which ranks take part")
    collective_dim = attribute(INTEGER, doc="the dimension that is cut and joined: 0")
    priority = attribute(optional(INTEGER), None, doc="class of service of its DMAs, 0 first to 3 (trn3)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def wanted(self, src: Access) -> Shape | None:
        return src.shape if self.cut(src) else None
