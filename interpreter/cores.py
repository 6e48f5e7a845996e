"""Running several cores of one program: in turn, deterministically, without threads.

A core runs until it comes to a rendezvous or to its end; then the other one does. When both have come to counterparts
the data change hands and they go on. Only if nobody could go on does a core that waits in an exchange run ahead, up to
the first call that touches what it is to receive: exchanges of different groups do not hold each other up. A core that
waits for something that never comes is reported with the places of both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from interpreter.loops import Call, run_all, run_for, run_while, value_of
from nki import errors
from nki.ir.effects import meet
from nki.ir.instruction import Instruction


@dataclass(eq=False)
class Meeting:
    """A core's arrival at a rendezvous: what it gives, where it puts what it takes (`None`: it only waits)."""

    key: Hashable
    give: np.ndarray | None
    take: np.ndarray | None
    instruction: Instruction
    done: bool = False


@dataclass(eq=False)
class _Core:
    """One core while it runs.

    arrived: its meetings of each key whose counterparts have not come. waits: the one it stands at.
    passed: exchanges that it has run past though they are not done. firm: it needs what `waits` brings.
    """

    number: int
    arrived: dict[Hashable, deque[Meeting]] = field(default_factory=dict)
    passed: list[Meeting] = field(default_factory=list)
    waits: Meeting | None = None
    firm: bool = False
    ended: bool = False
    steps: Iterator[Meeting] = field(default_factory=lambda: iter(()))

    @property
    def can_go_on(self) -> bool:
        """Whether it stands at nothing that it must wait for."""
        return not self.ended and (self.waits is None or self.waits.done)


def run_cores(cores: list[list[Call]]) -> None:
    """Run the calls of every core to the end."""
    running = [_Core(number) for number in range(len(cores))]
    for core, calls in zip(running, cores):
        core.steps = _all(core, calls)
    while not all(core.ended for core in running):
        ready = [core for core in running if core.can_go_on]
        for core in ready:
            _go_on(core, running)
        if not ready and not _run_ahead(running):
            raise _deadlock(running)


def _go_on(core: _Core, running: list[_Core]) -> None:
    """Let a core run to its next rendezvous, to something it must wait for, or to its end."""
    core.passed = [meeting for meeting in core.passed if not meeting.done]
    core.waits = next(core.steps, None)
    core.ended = core.waits is None
    core.firm = core.waits in core.passed
    if core.waits is not None and not core.firm:
        core.arrived.setdefault(core.waits.key, deque()).append(core.waits)
        _exchange(core.waits.key, running)


def _run_ahead(running: list[_Core]) -> bool:
    """Nobody can go on: let the first core that stands at an exchange leave it for later."""
    for core in running:
        if core.waits is not None and core.waits.take is not None and not core.firm:
            core.passed.append(core.waits)
            _go_on(core, running)
            return True
    return False


def _all(core: _Core, calls: list[Call]) -> Iterator[Meeting]:
    """Run a core's calls; stop at every rendezvous, and before what needs an exchange that is not done."""
    yield from _walk(core, calls)
    while core.passed:
        yield core.passed[0]


def _walk(core: _Core, calls: list[Call]) -> Iterator[Meeting]:
    """The same for a list of calls. Loops are run here, as their bodies may contain a rendezvous."""
    for function, arguments in calls:
        while core.passed:
            needed = _needed(core, function, arguments)
            if needed is None:
                break
            yield needed
        if function is meet:
            key, give, take, instruction = arguments
            yield Meeting(key, None if give is None else np.array(give, copy=True), take, instruction)
        elif function is run_all:
            yield from _walk(core, *arguments)
        elif function is run_for:
            yield from _walk_for(core, *arguments)
        elif function is run_while:
            yield from _walk_while(core, *arguments)
        else:
            function(*arguments)


def _walk_for(
    core: _Core, body: list[Call], counter: np.ndarray, bounds: Any, trips: Any
) -> Iterator[Meeting]:
    passes = range(value_of(bounds[0]), value_of(bounds[1]), bounds[2])
    if trips is not None and trips.counting:
        trips.counts[trips.enter()] = len(passes)
    for value in passes:
        counter[0] = value
        yield from _walk(core, body)


def _walk_while(core: _Core, body: list[Call], condition: np.ndarray, trips: Any) -> Iterator[Meeting]:
    place = trips.enter() if trips.counting else None
    while condition[0]:
        yield from _walk(core, body)
        if place is not None:
            trips.counts[place] += 1


def _needed(core: _Core, function: Any, arguments: tuple[Any, ...]) -> Meeting | None:
    """The first unfinished exchange that a call must wait for, because it may touch what is to be received."""
    core.passed = [meeting for meeting in core.passed if not meeting.done]
    if function in (run_all, run_for, run_while):
        return None
    touched = [*_touched(getattr(function, "__self__", None)), *_touched(arguments)]
    if getattr(function, "__closure__", None):
        touched.append(None)
    for meeting in core.passed:
        assert meeting.take is not None
        if any(array is None or np.may_share_memory(array, meeting.take) for array in touched):
            return meeting
    return None


_NO_MEMORY = (
    int,
    float,
    str,
    bytes,
    type(None),
    type(...),
    slice,
    np.generic,
    np.dtype,
    Instruction,
    ModuleType,
)


def _touched(value: Any) -> Iterator[np.ndarray | None]:
    """The arrays in what a call is made of; `None` for things that may hold arrays unseen."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _touched(item)
    elif not isinstance(value, _NO_MEMORY):
        yield None


def _exchange(key: Hashable, running: list[_Core]) -> None:
    """Let the first meetings of one key take place if all cores have come."""
    if any(not core.arrived.get(key) for core in running):
        return
    here = [core.arrived[key].popleft() for core in running]
    for core, meeting in enumerate(here):
        other = here[(core + 1) % len(here)]
        if meeting.take is not None and other.give is not None:
            _check_alike(here)
            np.copyto(meeting.take, other.give)
        meeting.done = True


def _check_alike(here: list[Meeting]) -> None:
    """What is exchanged must have one shape and dtype on both sides."""
    alike = [[(access.shape, access.dtype) for _, access in m.instruction.pairs] for m in here]
    if all(operands == alike[0] for operands in alike):
        return
    first = here[0].instruction
    places = tuple(
        f"core {core}: {', '.join(access.describe() for _, access in m.instruction.pairs)} at {m.instruction.span}"
        for core, m in enumerate(here)
    )
    raise errors.OperandShapeError(
        f"{first.mnemonic}: the cores exchange tiles of different shapes or dtypes",
        found="tiles that differ",
        allowed="tiles of one shape and dtype on both cores",
        remedy="exchange tiles of one shape; pad or convert the smaller one",
        notes=places,
        span=first.span,
    )


def _deadlock(running: list[_Core]) -> errors.DeadlockError:
    lines = []
    span = None
    for core in running:
        if core.waits is None:
            lines.append(f"core {core.number}: has come to its end")
            continue
        instruction = core.waits.instruction
        span = span or instruction.span
        lines.append(f"core {core.number}: waits in {instruction.mnemonic} at {instruction.span}")
    return errors.DeadlockError(
        "the cores wait for each other for ever",
        found="no counterpart",
        allowed="every exchange and barrier of one core has a counterpart on the other",
        remedy="make both cores issue the same exchanges and barriers (same pipe_id, same order)",
        notes=tuple(lines),
        span=span,
    )
