"""`nki.collectives.all_gather_v`: an all_gather in which each rank contributes as much as it says while running."""

from __future__ import annotations

from nki.collectives.replica_group import REPLICA_GROUP
from nki.collectives.variable import VariableCollective, metadata
from nki.ir.operands import ANY_DTYPE, BOOLEAN, HBM, INTEGER, TEXT, attribute, destination, optional, source
from nki.ir.verify import Fault, rule
from nki.isa.export import instruction
from nki.target import Target


@instruction
class all_gather_v(VariableCollective):
    """Slot r of dsts[0] begins with the block of srcs[0] that rank r of the group sends to all; slots have one size.

    The block is `metadata_tensor[0, 0]` elements from element `metadata_tensor[1, 0]`: only the first column of these
    rows is read. Row 2 receives how much came from each rank, unless `recv_counts_known`. The metadata are uint32 of
    shape (3, ranks) in HBM, (1, 3, ranks) in SBUF.
    Sources: nki.collectives.all_gather_v; semantics rules 137, 138.
    """

    srcs = source("*", HBM, ANY_DTYPE, many=True, doc="one tensor with the block to send")
    dsts = destination("*", HBM, ANY_DTYPE, many=True, reads=True, doc="one tensor with a slot for each rank")
    replica_group = attribute(REPLICA_GROUP, doc="which ranks take part")
    metadata_tensor = metadata("rows: count, start, counts received")
    recv_counts_known = attribute(BOOLEAN, False, doc="do not fill in row 2")
    has_rdispls = attribute(BOOLEAN, False, doc="must be False")
    priority = attribute(optional(INTEGER), None, doc="class of service of its DMAs, 0 first to 3 (trn3)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    @rule("places of one's own (has_rdispls) are not supported by all_gather_v")
    def slots_are_fixed(self, target: Target) -> Fault | None:
        if not self.has_rdispls:
            return None
        return Fault(
            operand="has_rdispls",
            found=True,
            allowed="False",
            remedy="leave it out; blocks arrive in slots of one size",
        )

    @rule("the chip has it for lists of 4 ranks with two cores each", severity="note")
    def ranks_are_one_chip(self, target: Target) -> Fault | None:
        wanted = target.all_gather_v_ranks
        if self.ranks == wanted and target.default_lnc > 1:
            return None
        return Fault(
            operand="replica_group",
            found=f"lists of {self.ranks} on {target.name}",
            allowed=f"lists of {wanted} ranks, with two cores a rank (LNC=2)",
            remedy="on the chip use all_gather for other groups",
        )
