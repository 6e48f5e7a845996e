"""The turns of loops on the device: every pass costs a branch on each engine that has instructions in the body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from interpreter.timing.charges import Charge
from nki.ir.control import Loop
from nki.ir.instruction import Instruction
from nki.ir.order import Test
from nki.ir.program import flatten


class Turn(NamedTuple):
    """A branch before instruction `at`, on the sequencers of these lanes."""

    at: int
    lanes: frozenset[int]


def turns_of(tests: Sequence[Test], charges: list[Charge], instructions: Sequence[Instruction]) -> list[Turn]:
    """The branches back to the beginning of loop bodies, in order of time."""
    lane_of = (
        {id(instruction): charge.lane for instruction, charge in zip(instructions, charges)} if tests else {}
    )
    lanes: dict[Loop, frozenset[int]] = {}
    found = []
    for test in tests:
        if not test.taken:
            continue
        members = lanes.get(test.loop)
        if members is None:
            executed = (lane_of.get(id(instruction)) for instruction in flatten(test.loop.body))
            members = lanes[test.loop] = frozenset(lane for lane in executed if lane is not None)
        found.append(Turn(test.at, members))
    return found
