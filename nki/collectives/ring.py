"""What the shifts along a ring have in common: channels, each with tensors of its own.

Users pass a list of lists, one list of exactly one tensor for each channel. The instruction holds one tensor for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki import errors
from nki.collectives.collective import CollectiveInstruction
from nki.collectives.replica_group import Groups
from nki.ir.instruction import Instruction
from nki.ir.verify import Fault, rule
from nki.isa.export import NkiInstruction, instruction
from nki.span import capture
from nki.target import Target


class RingCollective(CollectiveInstruction, abstract=True):
    """Every rank sends to its successor in its list, the last one to the first, on one or more channels."""

    receives = "dsts_by_channel"

    channel_ids: Any

    def hops(self) -> int:
        return int(self.ranks > 1)

    @rule("channels are counted from 0, without gaps (semantics rule 139)")
    def channels_are_counted(self, target: Target) -> Fault | None:
        count = len(self.tensors(self.receives))
        if tuple(self.channel_ids) == tuple(range(count)):
            return None
        return Fault(
            operand="channel_ids",
            found=list(self.channel_ids),
            allowed=f"{list(range(count))} for {count} lists of tensors",
            remedy=f"pass channel_ids={list(range(count))}",
            error=errors.ArgumentError,
        )

    @rule("a ring has up to 4 channels (semantics rule 139)")
    def channels_exist(self, target: Target) -> Fault | None:
        return channel_fault("channel_ids", len(self.channel_ids), target.collective_channels_max)

    @rule("a ring that does not contain all devices of a node has 2 channels", severity="note")
    def channels_are_wired(self, target: Target) -> Fault | None:
        fault = channel_fault("channel_ids", len(self.channel_ids), target.collective_channels_usual)
        return None if len(self.channel_ids) > target.collective_channels_max else fault

    @rule("source and destination of a channel have one size")
    def sizes_agree(self, target: Target) -> Fault | None:
        for channel in zip(*map(self.tensors, self.lists_of_tensors())):
            if len({access.size for access in channel}) > 1:
                return Fault(
                    operand=", ".join(self.lists_of_tensors()),
                    found=" and ".join(access.describe() for access in channel),
                    allowed="tensors of one size",
                    remedy=f"allocate the destination as {list(channel[0].shape)}",
                    error=errors.OperandShapeError,
                )
        return None


def channel_fault(operand: str, count: int, most: int) -> Fault | None:
    """The fault if there are more channels than `most`."""
    if count <= most:
        return None
    return Fault(
        operand=operand,
        found=f"{count} channels",
        allowed=f"at most {most}",
        remedy="use fewer channels with larger tensors",
        error=errors.LimitError,
    )


def predecessor(groups: Groups, rank: int, distance: int) -> int:
    """The rank that stands `distance` places before another one in its ring."""
    ring = next(ranks for ranks in groups if rank in ranks)
    return ring[(ring.index(rank) - distance) % len(ring)]


def by_channel(cls: type[Instruction]) -> Callable[..., NkiInstruction]:
    """Export a class like `instruction`, as a function that takes lists of lists of one tensor (decorator)."""
    exported = instruction(cls)
    lists = {operand.name for operand in cls.lists}

    def call(*args: Any, **kwargs: Any) -> NkiInstruction:
        given = [
            _single(cls, name, value) if name in lists else value for name, value in zip(cls.parameters, args)
        ]
        named = {
            name: _single(cls, name, value) if name in lists else value for name, value in kwargs.items()
        }
        handle: NkiInstruction = exported(*given, *args[len(given) :], **named)
        return handle

    call.__name__ = call.__qualname__ = cls.__name__
    call.__doc__ = cls.__doc__
    call.__module__ = cls.__module__
    shown = [p.replace(default=_listed(p.default)) for p in cls.signature.parameters.values()]
    call.__signature__ = cls.signature.replace(parameters=shown)  # type: ignore[attr-defined]
    call.instruction = cls  # type: ignore[attr-defined]
    return call


def _listed(default: Any) -> Any:
    """A default as it is documented: the instruction keeps tuples, because they can be hashed."""
    return list(default) if isinstance(default, tuple) else default


def _single(cls: type[Instruction], name: str, value: Any) -> list[Any]:
    """The one tensor of each channel."""
    channels = value if isinstance(value, (list, tuple)) else ()
    wrong = [channel for channel in channels if not isinstance(channel, (list, tuple)) or len(channel) != 1]
    if channels and not wrong:
        return [channel[0] for channel in channels]
    several = bool(wrong) and isinstance(wrong[0], (list, tuple)) and len(wrong[0]) > 1
    raise errors.ArgumentError(
        f"{cls.mnemonic}: `{name}` has a list of exactly one tensor for each channel",
        operand=name,
        found=f"{len(wrong[0])} tensors in a channel" if several else f"{value!r:.80}",
        allowed="[[tensor of channel 0], [tensor of channel 1], ...]",
        remedy="call it once for each tensor, or use more channels"
        if several
        else f"write {name}=[[tensor]]",
        span=capture(2),
    )
