"""What collectives have in common: operands in lists, ranks, and what one rank alone does.

A rank is a logical core (about/collectives.rst, Rank). This machine runs one, number 0, so every group is `[[0]]`: the
exchange with oneself, which is a copy. A group with other ranks is refused when the instruction is staged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import errors
from nki.collectives.replica_group import Groups, shown
from nki.enums import dge_mode
from nki.enums import engine as Engine
from nki.ir.cost import Phase, Transfer
from nki.ir.instruction import Instruction, Steps
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.isa.costs import sequencer_phase
from nki.isa.dma_rules import priority_fault
from nki.isa.kinds import operators
from nki.target import Target

OWN_RANK = 0
"""The rank that a run is."""

REDUCTION = operators(
    "nl.add, nl.minimum or nl.maximum", lambda operator: operator.name in ("add", "minimum", "maximum")
)


class CollectiveInstruction(Instruction, abstract=True):
    """Moves tensors between ranks. `semantics` says what happens in a group of one.

    sends, receives: names of the operands (lists) that go out and come in; `receives[i]` belongs to `sends[i]`.
    """

    engines = (Engine.sync,)
    limits = {}
    layout = "declared"
    namespace = "nki.collectives"
    sends: tuple[str, ...] = ("srcs",)
    receives = "dsts"

    priority: Any
    replica_group: Groups

    def compute(self) -> str:
        return "raw"

    def groups(self) -> Groups:
        """The ranks that take part, list by list."""
        return self.replica_group

    @property
    def ranks(self) -> int:
        """How many ranks exchange data with each other."""
        return len(self.groups()[0])

    def tensors(self, name: str) -> tuple[Access, ...]:
        """The tensors of a list."""
        found: tuple[Access, ...] = self.__dict__[name]
        return found

    def lists_of_tensors(self) -> tuple[str, ...]:
        """The operands that are lists, those that go out first."""
        return (*self.sends, self.receives)

    def array_shapes(self) -> dict[str, Shape]:
        """Flat: blocks of a tensor in HBM are stretches of it, and one rank's block is the whole."""
        return {operand.name: (access.size,) for operand, access in self.accesses()}

    @rule("the lists have one tensor for each other (semantics rule 137)")
    def lists_agree(self, target: Target) -> Fault | None:
        counts = {name: len(self.tensors(name)) for name in self.lists_of_tensors()}
        if len(set(counts.values())) == 1:
            return None
        return Fault(
            operand=", ".join(counts),
            found=", ".join(f"{count} in {name}" for name, count in counts.items()),
            allowed="as many tensors in each list",
            remedy="pass one destination for each source",
            error=errors.ArgumentError,
        )

    @rule("all tensors live in HBM, or all in SBUF (semantics rule 137)")
    def one_memory(self, target: Target) -> Fault | None:
        tensors = [access for name in self.lists_of_tensors() for access in self.tensors(name)]
        if len({access.memory.is_hbm for access in tensors}) == 1:
            return None
        return Fault(
            operand=", ".join(self.lists_of_tensors()),
            found=", ".join(access.describe() for access in tensors),
            allowed="one kind of memory",
            remedy="bring them together first with nisa.dma_copy",
            error=errors.MemoryError_,
        )

    @rule("a collective does not convert: source and destination have one dtype (inferred)")
    def dtypes_agree(self, target: Target) -> Fault | None:
        for tensors in zip(*map(self.tensors, self.lists_of_tensors())):
            if len({access.dtype for access in tensors}) > 1:
                return Fault(
                    operand=", ".join(self.lists_of_tensors()),
                    found=" and ".join(access.describe() for access in tensors),
                    allowed="one dtype",
                    remedy="convert before or after: nisa.tensor_copy and nisa.dma_copy cast",
                    error=errors.OperandDtypeError,
                )
        return None

    @rule("`priority` is a class of service of trn3, from 0 to 3")
    def priority_exists(self, target: Target) -> Fault | None:
        return priority_fault(self.priority, target)

    def resolve(self, builder: Any) -> None:
        fault = other_ranks(self.mnemonic, self.groups())
        if fault is not None:
            raise fault

    def semantics(self, a: Any) -> Steps:
        for src, dst in zip(getattr(a, self.sends[0]), getattr(a, self.receives)):
            yield np.copyto, (dst, src)

    def hops(self) -> int:
        """Steps of a ring in which data go from rank to rank, one after the other."""
        return self.ranks - 1

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: a DMA of the larger side's bytes (one rank copies them; in a ring each of n ranks passes on as much
        in n - 1 hops), and the latency of the hops. What starting a collective costs besides is not published."""
        phases = []
        for tensors in zip(*map(self.tensors, self.lists_of_tensors())):
            largest = max(tensors, key=lambda access: access.size)
            pieces = target.dma_engines if largest.memory.is_hbm else largest.partitions
            transfer = Transfer(pieces, -(-largest.size * largest.dtype.itemsize // pieces), dge_mode.none)
            phases.append(Phase(0, kind="collective", transfer=transfer))
        if self.hops():
            hops = sequencer_phase(target, self.engine, self.hops() * target.collective_hop_ps, "hops")
            phases.append(Phase(0, hops.interval, "hops"))
        return tuple(phases)


def other_ranks(mnemonic: str, groups: Groups) -> errors.NkiError | None:
    """The error if ranks take part that this run does not have."""
    if all(rank == OWN_RANK for ranks in groups for rank in ranks):
        return None
    return errors.MultiRankError(
        f"{mnemonic}: running more than one rank is not supported yet",
        operand="the ranks that take part",
        found=shown(groups),
        allowed=f"{shown([[OWN_RANK]])}: a run is one rank, number {OWN_RANK}, with one core or both of kernel[2]",
        remedy=f"run with ReplicaGroup({shown([[OWN_RANK]])}), where a collective is an exchange with oneself",
    )
