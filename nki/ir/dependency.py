"""Why an instruction must wait for an earlier one of its core: one record per pair.

`nki/passes/dependencies.py` finds them, the time model and the race check use them. Values never depend on them:
a program is run in its order.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class DependencyKind(Enum):
    """What would go wrong without the wait."""

    RAW = "reads what it wrote"
    WAR = "overwrites what it reads"
    WAW = "overwrites what it wrote"
    REUSE = "takes the address of a tile it used"
    """The allocator gave the address to another tile; renaming or more memory would remove the wait."""
    ACCUMULATE = "adds to what it wrote"
    """Both accumulate into the same elements: the order matters, the engine that adds keeps it by itself."""
    STATE = "uses the engine register it used"
    ORDER = "was told to come after it"


class Dependency(NamedTuple):
    """One wait: the producer's index in the core's list, what it is for, and the waiting instruction's operand.

    `operand` is the register's name for `STATE`, `$name` for a register of the sequencer, and empty for `ORDER`.
    """

    on: int
    kind: DependencyKind
    operand: str
