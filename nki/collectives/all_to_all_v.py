"""`nki.collectives.all_to_all_v`: an all_to_all in which the size of each block is known only while running."""

from __future__ import annotations

from nki import errors
from nki.collectives.replica_group import REPLICA_GROUP
from nki.collectives.variable import VariableCollective, metadata
from nki.ir.operands import ANY_DTYPE, BOOLEAN, HBM, INTEGER, TEXT, attribute, destination, optional, source
from nki.ir.verify import Fault, rule
from nki.isa.export import instruction
from nki.target import Target


@instruction
class all_to_all_v(VariableCollective):
    """Each rank gives rank r `metadata_tensor[0, r]` elements of srcs[0], from element `metadata_tensor[1, r]`.

    What comes from rank r is put at `metadata_tensor[3, r]` of dsts[0] with `has_rdispls`, else at the begin of slot r;
    slots have one size. Row 2 receives how much came from each rank, unless `recv_counts_known`. The metadata are
    uint32 of shape (rows, ranks) in HBM, (1, rows, ranks) in SBUF; 4 rows with `has_rdispls`, else 3.
    Sources: nki.collectives.all_to_all_v; semantics rules 137, 138.
    """

    srcs = source("*", HBM, ANY_DTYPE, many=True, doc="one tensor with a block for each rank")
    dsts = destination("*", HBM, ANY_DTYPE, many=True, reads=True, doc="one tensor, receives the blocks")
    replica_group = attribute(REPLICA_GROUP, doc="which ranks take part")
    metadata_tensor = metadata("rows: counts, starts, counts received, and places with has_rdispls")
    recv_counts_known = attribute(BOOLEAN, False, doc="do not fill in row 2")
    has_rdispls = attribute(BOOLEAN, False, doc="row 3 says where blocks are put (trn3)")
    priority = attribute(optional(INTEGER), None, doc="class of service of its DMAs, 0 first to 3 (trn3)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    @rule("places of one's own (has_rdispls) need a NeuronSwitch fabric")
    def places_are_supported(self, target: Target) -> Fault | None:
        if not self.has_rdispls or target.neuron_switch:
            return None
        return Fault(
            operand="has_rdispls",
            found=f"True on {target.name}",
            allowed="False; True on trn3",
            remedy="leave it out, or run with target='trn3'",
            error=errors.TargetError,
        )

    @rule("the chip has it for groups of several devices, in whole", severity="note")
    def devices_are_whole(self, target: Target) -> Fault | None:
        device = target.cores_per_chip // target.default_lnc
        if self.ranks > device and (self.ranks % device == 0 or not target.neuron_switch):
            return None
        whole = f"more than one device with all of its {device} ranks"
        return Fault(
            operand="replica_group",
            found=f"lists of {self.ranks} on {target.name}",
            allowed=whole if target.neuron_switch else "ranks of several nodes",
            remedy="on the chip use all_to_all for other groups",
        )
