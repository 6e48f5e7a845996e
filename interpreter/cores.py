"""Running several cores of one program: in turn, deterministically, without threads.

A core runs until it comes to a rendezvous or to its end; then the other one does. When all have come to counterparts, the
data change hands and they go on. A core that waits for something that never comes is reported with the places of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from interpreter.loops import Call, run_all, run_for, run_while, value_of
from nki import errors
from nki.ir.effects import meet
from nki.ir.instruction import Instruction

Meeting = tuple[Any, Any, Any, Instruction]


def run_cores(cores: list[list[Call]]) -> None:
    """Run the calls of every core to the end."""
    running = [_walk(calls) for calls in cores]
    while True:
        meetings = [next(core, None) for core in running]
        if all(meeting is None for meeting in meetings):
            return
        _exchange(meetings)


def _walk(calls: list[Call]) -> Iterator[Meeting]:
    """Run calls; stop at every rendezvous. Loops are run here, as their bodies may contain one."""
    for function, arguments in calls:
        if function is meet:
            yield arguments  # type: ignore[misc]
        elif function is run_all:
            yield from _walk(*arguments)
        elif function is run_for:
            body, counter, bounds, trips = arguments
            passes = range(value_of(bounds[0]), value_of(bounds[1]), bounds[2])
            if trips is not None and trips.counting:
                trips.counts[trips.enter()] = len(passes)
            for value in passes:
                counter[0] = value
                yield from _walk(body)
        elif function is run_while:
            body, condition, trips = arguments
            place = trips.enter() if trips.counting else None
            while condition[0]:
                yield from _walk(body)
                if place is not None:
                    trips.counts[place] += 1
        else:
            function(*arguments)


def _exchange(meetings: list[Meeting | None]) -> None:
    here = [meeting for meeting in meetings if meeting is not None]
    if len(here) < len(meetings) or any(meeting[0] != here[0][0] for meeting in here):
        raise _deadlock(meetings)
    given = [None if give is None else np.array(give, copy=True) for _, give, _, _ in here]
    for core, (_, _, take, _) in enumerate(here):
        values = given[(core + 1) % len(here)]
        if take is not None and values is not None:
            np.copyto(take, values)


def _deadlock(meetings: list[Meeting | None]) -> errors.DeadlockError:
    lines = []
    span = None
    for core, meeting in enumerate(meetings):
        if meeting is None:
            lines.append(f"core {core}: has come to its end")
            continue
        instruction = meeting[3]
        span = span or instruction.span
        lines.append(f"core {core}: waits in {instruction.mnemonic} ({meeting[0]}) at {instruction.span}")
    return errors.DeadlockError(
        "the cores wait for each other for ever",
        found="; ".join(lines),
        allowed="both cores reach the same rendezvous, in the same order",
        remedy="make both cores issue the same exchanges and barriers (same pipe_id, same order)",
        notes=tuple(lines),
        span=span,
    )
