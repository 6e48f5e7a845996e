"""`nki.collectives.collective_permute`: ranks send a tensor to the rank that a list of pairs names."""

from __future__ import annotations

from typing import Any

from nki import errors
from nki.collectives.replica_group import RANK_PAIRS, Groups, shown
from nki.collectives.single import SingleCollective
from nki.ir.operands import ANY_DTYPE, HBM, INTEGER, TEXT, attribute, destination, optional, source
from nki.ir.verify import Fault, rule
from nki.isa.export import instruction
from nki.target import Target


@instruction
class collective_permute(SingleCollective):
    """dsts[0] of the target rank = srcs[0] of the source rank, for each pair (source, target).

    Ranks that no pair names do nothing. One tensor at a time, in HBM. For a shift along a ring
    `collective_permute_implicit` is faster on the chip.
    Sources: nki.collectives.collective_permute; about/collectives.rst; semantics rule 137.
    """

    srcs = source("*", HBM, ANY_DTYPE, many=True, doc="the tensor to send")
    dsts = destination("*", HBM, ANY_DTYPE, many=True, doc="receives the source rank's tensor")
    source_target_pairs: Any = attribute(RANK_PAIRS, doc="(source rank, target rank), each")
    priority = attribute(optional(INTEGER), None, doc="class of service of its DMAs, 0 first to 3 (trn3)")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def groups(self) -> Groups:
        pairs: Groups = self.source_target_pairs
        return pairs

    def hops(self) -> int:
        return int(any(source != target for source, target in self.source_target_pairs))

    @rule("a rank sends to one rank and receives from one rank")
    def pairs_are_distinct(self, target: Target) -> Fault | None:
        for position, what in enumerate(("source", "target")):
            ranks = [pair[position] for pair in self.source_target_pairs]
            if len(set(ranks)) < len(ranks):
                return Fault(
                    operand="source_target_pairs",
                    found=shown(self.source_target_pairs),
                    allowed=f"each rank once as {what}",
                    remedy="use several calls, or all_gather",
                    error=errors.ArgumentError,
                )
        return None

    @rule("the runtime moves data in circles only: every source is a target too", severity="note")
    def pairs_form_circles(self, target: Target) -> Fault | None:
        sources, targets = (sorted(ranks) for ranks in zip(*self.source_target_pairs))
        if sources == targets:
            return None
        return Fault(
            operand="source_target_pairs",
            found=shown(self.source_target_pairs),
            allowed="pairs that form circles (about/collectives.rst, Permute)",
            remedy="add the pair that closes the circle",
        )

    @rule("the destination has the size of the source")
    def sizes_agree(self, target: Target) -> Fault | None:
        return size_fault(self.srcs[0], self.dsts[0])


def size_fault(src: Any, dst: Any) -> Fault | None:
    """The fault if a destination has another size than its source."""
    if src.size == dst.size:
        return None
    return Fault(
        operand=f"dsts: {dst.describe()}",
        found=f"{dst.size} elements",
        allowed=f"{src.size}, as in {src.describe()}",
        remedy=f"allocate the destination as {list(src.shape)}",
        error=errors.OperandShapeError,
    )
