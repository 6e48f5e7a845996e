"""`nki.collectives.all_gather`: every rank gets the tensors of all ranks, side by side."""

from __future__ import annotations

from nki.collectives.placement import BlockCollective
from nki.collectives.replica_group import REPLICA_GROUP
from nki.ir.operands import ANY_DTYPE, HBM_OR_SBUF, INTEGER, TEXT, attribute, destination, optional, source
from nki.ir.program import Access, Shape
from nki.isa.export import instruction


@instruction
class all_gather(BlockCollective):
    """dsts[i] = srcs[i] of all ranks of the group, joined along `collective_dim` in the order of the group.

    In HBM the dimension is 0, and several tensors may be gathered at once; in SBUF it is 0 or 1.
    Sources: nki.collectives.all_gather; semantics rule 137.
    """

    dims_in_sbuf = (0, 1)

    srcs = source("*", HBM_OR_SBUF, ANY_DTYPE, many=True, doc="what this rank contributes")
    dsts = destination("*", HBM_OR_SBUF, ANY_DTYPE, many=True, doc="the joined tensors")
    replica_group = attribute(REPLICA_GROUP, doc="which ranks take part")
    collective_dim = attribute(INTEGER, doc="the dimension along which tensors are joined")
    priority = attribute(optional(INTEGER), None, doc="class of service of its DMAs, 0 first to 3 (trn3)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def wanted(self, src: Access) -> Shape | None:
        return self.joined(src)
