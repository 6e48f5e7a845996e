"""The critical path: from the last semaphore back to the start, along what each instruction waited for last."""

from __future__ import annotations

from collections.abc import Iterator

from interpreter.timing.report import dma_stretches
from interpreter.timing.timeline import (
    BEFOREHAND,
    ENGINE,
    EXECUTE,
    SEMAPHORE,
    WARM_UP,
    Step,
    Trace,
)
from nki.target import Target


def critical_path(trace: Trace, first: int, target: Target) -> tuple[Step, ...]:
    """The steps of one core in order of time; `first` is the number of its first instruction."""
    steps: list[Step] = []
    for index, reason, ps in _backwards(trace, target):
        if ps <= 0:
            continue
        if steps and steps[-1].number == first + index and steps[-1].reason == reason:
            ps += steps.pop().ps
        steps.append(Step(first + index, reason, ps))
    return tuple(reversed(steps))


def _backwards(trace: Trace, target: Target) -> Iterator[tuple[int, str, int]]:
    """Stretches from the last semaphore to the start: instruction, reason, length."""
    until = trace.latency_ps
    index = next((i for i, visible in enumerate(trace.visible) if visible == until), -1)
    while index >= 0:
        yield from _own(trace, index, until, target)
        until = trace.start[index]
        delays = trace.delays.get(index, [])
        beforehand = [] if trace.reordered else [delay for delay in delays if delay[0] in BEFOREHAND]
        for reason, ps in reversed(delays):
            if (reason, ps) not in beforehand:
                yield index, reason, ps
                until -= ps
        dependency = trace.cause[index]
        before = trace.before(index, until)
        ready = trace.satisfied(index, target)
        was_free = trace.end[before] if before >= 0 else 0
        free = was_free + sum(ps for _, ps in beforehand)
        yield index, ENGINE, until - max(ready, free)
        if dependency is not None and ready >= free:
            until = ready
            if not trace.in_engine(index, dependency):
                yield index, SEMAPHORE, target.semaphore_wake_ps
                until = trace.visible[dependency.on]
            index = dependency.on
        else:
            for reason, ps in reversed(beforehand):
                yield index, reason, ps
            index = before
            until = was_free


def _own(trace: Trace, index: int, until: int, target: Target) -> Iterator[tuple[int, str, int]]:
    """What an instruction did from its start to `until`, latest first."""
    if index in trace.moves:
        for start, end, reason in reversed(list(dma_stretches(trace, index))):
            yield index, reason, min(end, until) - start
        return
    start, shown = trace.start[index], trace.visible[index] - target.semaphore_signal_ps
    yield index, SEMAPHORE, until - max(start, shown)
    worked = min(until, shown) - start
    warming = min(trace.cold.get(index, 0), worked)
    yield index, WARM_UP, warming
    yield index, EXECUTE, worked - warming
