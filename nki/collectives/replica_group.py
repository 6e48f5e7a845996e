"""`ReplicaGroup`: which ranks exchange data with each other, and the attribute kinds made of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nki import errors
from nki.ir.operands import Kind
from nki.objects import NKIObject
from nki.span import capture

Groups = tuple[tuple[int, ...], ...]


@dataclass(init=False, eq=False, repr=False)
class ReplicaGroup(NKIObject):
    """Lists of ranks, e.g. `ReplicaGroup([[0, 1], [2, 3]])`: the ranks of one list take part in one exchange.

    No rank stands twice, and all lists have the same length. The order in a list is the order of the blocks of
    all_gather and the like, and of the ring.
    Sources: nki.collectives.ReplicaGroup; semantics rule 137. That the lengths agree is inferred.
    """

    replica_groups: list[list[int]]

    def __init__(self, replica_groups: Sequence[Sequence[int]]) -> None:
        try:
            found = checked(replica_groups)
        except errors.NkiError as error:
            raise error.at(capture(2)) from None
        self.replica_groups = [list(ranks) for ranks in found]


def checked(value: Any) -> Groups:
    """Lists of ranks as tuples, or the error that says what is wrong with them."""
    groups = tuple(_ranks(ranks) for ranks in value) if _is_list(value) else ()
    if not groups or () in groups:
        raise _fault("it has no ranks", f"{value!r:.80}", "a list of lists of ranks")
    every = [rank for ranks in groups for rank in ranks]
    twice = sorted({rank for rank in every if every.count(rank) > 1})
    if twice:
        raise _fault(f"rank {twice[0]} stands in it twice", shown(groups), "every rank at most once")
    if len({len(ranks) for ranks in groups}) > 1:
        raise _fault("its lists differ in length", shown(groups), "lists of one length")
    return groups


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict))


def _ranks(value: Any) -> tuple[int, ...]:
    found = tuple(value) if _is_list(value) else (value,)
    for rank in found:
        if not _is_list(value) or isinstance(rank, bool) or not hasattr(rank, "__index__") or rank < 0:
            raise _fault("it is no list of lists of ranks", f"{value!r:.80}", "lists of numbers from 0 up")
    return tuple(int(rank) for rank in found)


def _fault(text: str, found: str, allowed: str) -> errors.ArgumentError:
    return errors.ArgumentError(
        f"this replica group cannot be: {text}",
        operand="replica_group",
        found=found,
        allowed=allowed,
        remedy="write ReplicaGroup([[0, 1], [2, 3]])",
    )


def shown(groups: Iterable[Iterable[int]]) -> str:
    """Lists of ranks as they are written."""
    return "[" + ", ".join(f"[{', '.join(map(str, ranks))}]" for ranks in groups) + "]"


def _group(value: Any) -> Groups:
    if isinstance(value, ReplicaGroup):
        return checked(value.replica_groups)
    raise errors.ArgumentError(
        f"expected a ReplicaGroup, got {type(value).__name__}",
        found=f"{value!r:.80}",
        allowed="a ReplicaGroup",
        remedy="write nki.collectives.ReplicaGroup([[0, 1]])",
    )


def _pairs(value: Any) -> Groups:
    found = tuple(_ranks(pair) for pair in value) if _is_list(value) else ()
    if found and all(len(pair) == 2 for pair in found):
        return found
    raise errors.ArgumentError(
        "expected pairs of a source and a target rank",
        found=f"{value!r:.80}",
        allowed="a list of at least one (source, target)",
        remedy="write [(0, 1), (1, 0)]",
    )


REPLICA_GROUP = Kind("a ReplicaGroup", _group, shown, checked)
RANK_PAIRS = Kind("a list of (source, target) ranks", _pairs, shown, _pairs)
