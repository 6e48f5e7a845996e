"""The rule of the collectives that take exactly one tensor."""

from __future__ import annotations

from nki import errors
from nki.collectives.collective import CollectiveInstruction
from nki.ir.verify import Fault, rule
from nki.target import Target


class SingleCollective(CollectiveInstruction, abstract=True):
    """A collective whose lists hold one tensor each, in HBM."""

    @rule("each list has exactly one tensor (semantics rule 137)")
    def one_tensor(self, target: Target) -> Fault | None:
        for name in self.lists_of_tensors():
            if len(self.tensors(name)) != 1:
                return Fault(
                    operand=name,
                    found=f"{len(self.tensors(name))} tensors",
                    allowed="one",
                    remedy="call it once for each tensor",
                    error=errors.LimitError,
                )
        return None
