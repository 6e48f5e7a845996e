"""Figures that only the probes need: single bars of a profile, single DMAs, and times in which bars are drawn."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.accuracy.cases import Figure, Timed, duration_ns
from interpreter.timing.timeline import TABLE_LOAD, Move, Trace

_PS_PER_NS = 1_000
_PS_PER_US = 1_000_000
_PS_PER_MS = 1_000_000_000
_PERCENT = 100


def scaled(figure: Figure, factor: float) -> Figure:
    """Another figure times a number: for a part of a loop, or for one half of a float32 product."""
    return lambda timed: factor * figure(timed)


def rhythm_ns(mnemonic: str, first: int = 0, last: int | None = None) -> Figure:
    """Mean distance between consecutive starts of instructions of one name as time goes, from `first` to `last`."""

    def figure(timed: Timed) -> float:
        starts = sorted(timed.timeline.traces[0].start[index] for index in timed.indices(mnemonic))
        chosen = starts[first : None if last is None else last + 1]
        return (chosen[-1] - chosen[0]) / (len(chosen) - 1) / _PS_PER_NS

    return figure


def drawn_ms(engine: str) -> Figure:
    """How long a profile shows a bar of the engine, the "active time" of its summary.

    A bar lasts from the start to the result, so it is longer than the time for which the engine is taken; loads of
    weights have bars too.
    """

    def figure(timed: Timed) -> float:
        total = reached = 0
        for start, end in sorted(_bars(timed, engine)):
            total += max(0, end - max(start, reached))
            reached = max(reached, end)
        return total / _PS_PER_MS

    return figure


def _bars(timed: Timed, engine: str) -> Iterator[tuple[int, int]]:
    trace = timed.timeline.traces[0]
    signal = timed.timeline.target.semaphore_signal_ps
    for event in timed.timeline.events:
        if event.lane == engine and event.index not in trace.moves:
            yield event.start_ps, max(event.end_ps, event.visible_ps - signal)


def step_ns(mnemonic: str, kind: str, waited: int = 0) -> Figure:
    """The bar of one step of a Tensor instruction ("load_stationary", "multiply_moving", "transpose").

    waited: what the published bar includes of waiting for a semaphore, in ns.
    """

    def figure(timed: Timed) -> float:
        charge = timed.timeline.traces[0].charges[timed.indices(mnemonic)[0]]
        step = next(step for step in charge.steps if step.kind == kind)
        return (step.interval + step.latency) / _PS_PER_NS + waited

    return figure


def with_table_ns(mnemonic: str, loader: str) -> Figure:
    """The bar of an instruction together with that of the activation tables, which the model loads for `loader`."""
    bar, table = duration_ns(mnemonic), table_load_ns(loader)
    return lambda timed: bar(timed) + table(timed)


def table_load_ns(mnemonic: str) -> Figure:
    """How long the first instruction of that name took to load its activation tables."""

    def figure(timed: Timed) -> float:
        delays = timed.timeline.traces[0].delays.get(timed.indices(mnemonic)[0], [])
        return sum(ps for reason, ps in delays if reason == TABLE_LOAD) / _PS_PER_NS

    return figure


def warm_up_us(mnemonic: str) -> Figure:
    """From the start of the first instruction of that name until they follow each other at their final rate."""

    def figure(timed: Timed) -> float:
        starts = sorted(timed.timeline.traces[0].start[index] for index in timed.indices(mnemonic))
        final = starts[-1] - starts[-2]
        warm = next(i for i in range(len(starts) - 1) if starts[i + 1] - starts[i] <= final)
        return (starts[warm] - starts[0]) / _PS_PER_US

    return figure


def packet_ms(timed: Timed) -> float:
    """The time for which the DMA engines moved data, summed over them: the "packet time" of a summary."""
    return sum(timed.timeline.dma.busy_ps) / _PS_PER_MS


def moving_ns(nth: int) -> Figure:
    """How long the nth DMA moved data."""

    def figure(timed: Timed) -> float:
        move, _, _ = _dma(timed, nth)
        return (move.done - move.start) / _PS_PER_NS

    return figure


def served_ns(nth: int) -> Figure:
    """How long one DMA engine moved data for the nth DMA."""

    def figure(timed: Timed) -> float:
        _, index, trace = _dma(timed, nth)
        charge = trace.charges[index].dma
        assert charge is not None
        return max(charge.services) / _PS_PER_NS

    return figure


def completing_ns(nth: int) -> Figure:
    """From the last byte of the nth DMA to its semaphore."""

    def figure(timed: Timed) -> float:
        move, index, trace = _dma(timed, nth)
        return (trace.visible[index] - move.done) / _PS_PER_NS

    return figure


def software_start_ns(nth: int) -> Figure:
    """From the trigger of the nth DMA leaving GpSimd, its descriptors made, to data moving."""

    def figure(timed: Timed) -> float:
        move, _, _ = _dma(timed, nth)
        return (move.start - _left(timed, move)) / _PS_PER_NS

    return figure


def trigger_to_use_ns(nth: int) -> Figure:
    """From the trigger of the nth DMA leaving GpSimd to the start of what waits for it, be it a load of tables."""

    def figure(timed: Timed) -> float:
        move, index, trace = _dma(timed, nth)
        usable = trace.visible[index] + timed.timeline.target.semaphore_wake_ps
        return (usable - _left(timed, move)) / _PS_PER_NS

    return figure


def _left(timed: Timed, move: Move) -> int:
    return move.ready - timed.timeline.target.dma_swdge_start_ps


def ready_interval_ns(count: int) -> Figure:
    """Mean distance between the first DMAs being ready to move data, however busy their queue is."""

    def figure(timed: Timed) -> float:
        first, last = _dma(timed, 0)[0], _dma(timed, count - 1)[0]
        return (last.ready - first.ready) / (count - 1) / _PS_PER_NS

    return figure


def relative_rate(count: int, ratio: float) -> Figure:
    """The throughput of the first `count` DMAs as % of that of the next `count`, each from end to end.

    ratio: bytes of one of the first over bytes of one of the next.
    """

    def figure(timed: Timed) -> float:
        done = [_dma(timed, nth)[0].done for nth in range(2 * count)]
        return _PERCENT * ratio * (done[-1] - done[count]) / (done[count - 1] - done[0])

    return figure


def _dma(timed: Timed, nth: int) -> tuple[Move, int, Trace]:
    """The nth DMA in program order, its position, and the trace."""
    trace = timed.timeline.traces[0]
    index = sorted(trace.moves)[nth]
    return trace.moves[index], index, trace
