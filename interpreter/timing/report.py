"""From the arrays of a trace to the records of a timeline: stretches of work, and why engines stood still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from interpreter.timing.charges import ENGINES
from interpreter.timing.timeline import (
    BARRIER,
    BEFOREHAND,
    BUFFER,
    DATA,
    DMA_BANDWIDTH,
    DMA_LATENCY,
    DMA_QUEUE,
    ENGINE,
    ISSUE,
    ORDER,
    SEMAPHORE,
    DmaUse,
    EngineUse,
    Event,
    Trace,
    Wait,
)
from nki.ir.dependency import Dependency, DependencyKind
from nki.target import Target

if TYPE_CHECKING:
    from interpreter.timing.timeline import Timeline

_BY_KIND = {
    DependencyKind.RAW: DATA,
    DependencyKind.ACCUMULATE: DATA,
    DependencyKind.STATE: DATA,
    DependencyKind.WAR: BUFFER,
    DependencyKind.WAW: BUFFER,
    DependencyKind.REUSE: BUFFER,
    DependencyKind.ORDER: ORDER,
}

Stretch = tuple[int, int, str]
"""start, end, reason."""


def events(trace: Trace) -> Iterator[Event]:
    """Every stretch of work of a core: by instruction, what ran behind an engine's back last."""
    for index, charge in enumerate(trace.charges):
        start, end, visible = trace.start[index], trace.end[index], trace.visible[index]
        lane = ENGINES[charge.lane].name
        move = trace.moves.get(index)
        if move is None:
            if end > start or charge.interval == 0:
                yield Event(trace.core, index, lane, start, end, visible, charge.kind)
            continue
        yield Event(trace.core, index, lane, start, end, end, "issue")
        yield Event(trace.core, index, f"dma{move.queue}", move.start, move.done, visible, charge.kind)
    for index, start, end, kind in trace.background:
        lane = ENGINES[trace.charges[index].lane].name
        yield Event(trace.core, index, lane, start, end, end, kind)


def dma_stretches(trace: Trace, index: int) -> Iterator[Stretch]:
    """What a DMA spent its time on, from its issue to its semaphore."""
    move = trace.moves[index]
    yield trace.start[index], move.issued, ISSUE
    yield move.issued, move.ready, DMA_LATENCY
    yield move.ready, move.met, BARRIER
    yield move.met, move.start, DMA_QUEUE
    yield move.start, move.done, DMA_BANDWIDTH
    yield move.done, trace.visible[index], DMA_LATENCY


def waiting_for(trace: Trace, index: int, dependency: Dependency, target: Target) -> Iterator[Stretch]:
    """What the time until a dependency is satisfied is to be called."""
    on = dependency.on
    visible = trace.visible[on]
    reason = _BY_KIND[dependency.kind]
    if trace.in_engine(index, dependency):
        yield 0, trace.end[on], reason
        return
    if on in trace.moves and reason != BUFFER:
        yield 0, trace.start[on], ISSUE
        yield from dma_stretches(trace, on)
    elif on in trace.moves:
        yield 0, visible, reason
    else:
        yield 0, visible - target.semaphore_signal_ps, reason
        visible -= target.semaphore_signal_ps
    yield visible, trace.visible[on] + target.semaphore_wake_ps, SEMAPHORE


def explain(trace: Trace, index: int, since: int, target: Target) -> Iterator[Wait]:
    """Why an instruction did not start at `since`, when its engine was free."""
    start = trace.start[index]
    dependency = trace.cause[index]
    lane = ENGINES[trace.charges[index].lane].name
    delays = trace.delays.get(index, [])
    beforehand = [] if trace.reordered else [delay for delay in delays if delay[0] in BEFOREHAND]
    after = [delay for delay in delays if delay not in beforehand]
    begun = start - sum(ps for _, ps in after)
    before = trace.before(index, begun)
    free = trace.end[before] if before >= 0 else 0
    stretches: list[tuple[int, int, str, int | None]] = []
    for reason, ps in beforehand:
        stretches.append((free, free + ps, reason, None))
        free += ps
    if dependency is not None:
        stretches += [
            (a, b, why, dependency.on) for a, b, why in waiting_for(trace, index, dependency, target)
        ]
    stretches.append((0, begun, ENGINE, before if before >= 0 else None))
    for reason, ps in after:
        stretches.append((begun, begun + ps, reason, None))
        begun += ps
    reached = since
    for _, end, reason, because in stretches:
        end = min(end, start)
        if end > reached:
            yield Wait(trace.core, lane, index, reached, end, reason, because)
            reached = end


def _by_engine(trace: Trace) -> list[list[int]]:
    """The instructions of each engine in order of start."""
    lanes: list[list[int]] = [[] for _ in ENGINES]
    for index, charge in enumerate(trace.charges):
        lanes[charge.lane].append(index)
    start = trace.start
    for members in lanes:
        members.sort(key=start.__getitem__)  # already in order if the engine has one queue
    return lanes


def waits(trace: Trace, target: Target) -> Iterator[Wait]:
    """Every stretch in which an engine with work left stood still, engine by engine."""
    for members in _by_engine(trace):
        reached = 0
        for index in members:
            if trace.start[index] > reached:
                yield from explain(trace, index, reached, target)
            reached = max(reached, trace.end[index])


def engine_uses(timeline: Timeline) -> dict[str, EngineUse]:
    """Each engine's share of the run, summed over cores.

    Where two instructions of one engine seem to run at once, as the "compiler" schedule has it, one of them runs in a
    gap: the gaps count as busy so far, waits for the engine first.
    """
    waited: dict[str, Counter[str]] = {unit.name: Counter() for unit in ENGINES}
    for wait in timeline.waits:
        waited[wait.engine][wait.reason] += wait.end_ps - wait.start_ps
    busy, twice, idle, count = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for trace in timeline.traces:
        for unit, members in zip(ENGINES, _by_engine(trace)):
            reached = 0
            for index in members:
                start, end = trace.start[index], trace.end[index]
                alone = max(0, end - max(start, reached))
                busy[unit.name] += alone
                twice[unit.name] += end - start - alone
                reached = max(reached, end)
            count[unit.name] += len(members)
            idle[unit.name] += trace.latency_ps - reached
    for name, found in waited.items():
        for reason in (ENGINE, *(reason for reason, _ in found.most_common() if reason != ENGINE)):
            filled = min(twice[name], found[reason])
            found[reason] -= filled
            twice[name] -= filled
            busy[name] += filled
        idle[name] -= twice[name]
        busy[name] += twice[name]
    whole = timeline.latency_ps * len(timeline.traces)
    return {
        name: EngineUse(
            busy[name], busy[name] / whole if whole else 0.0, count[name], dict(+found), idle[name]
        )
        for name, found in waited.items()
    }


def dma_use(timeline: Timeline) -> DmaUse:
    """What the DMA engines did, over all cores."""
    transfers = descriptors = moved = active = 0
    busy: list[int] = []
    for trace in timeline.traces:
        engines = [0] * timeline.target.dma_engines
        uses = Counter(trace.charges[index].dma for index in trace.moves)
        for charge, times in uses.items():
            assert charge is not None
            transfers += times
            descriptors += times * charge.descriptors
            moved += times * charge.bytes
            engines = [total + times * service for total, service in zip(engines, charge.services)]
        busy += engines
        reached = 0
        for move in sorted(trace.moves.values(), key=lambda move: move.start):
            active += max(0, move.done - max(move.start, reached))
            reached = max(reached, move.done)
    return DmaUse(transfers, descriptors, moved, tuple(busy), active)
