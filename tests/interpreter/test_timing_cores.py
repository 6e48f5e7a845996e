"""Two cores in time: who comes first to a barrier or an exchange waits, exchanges in another order do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import nki
import nki.isa as nisa
import nki.language as nl
from interpreter.timing.timeline import BARRIER
from nki import errors
from tests.isa.two_cores import X, both, exchange, shared, tile
from tests.property.scripts import play, scripts


def work(steps: int, engine: Any = nisa.engine.gpsimd) -> Any:
    """A tile, after so many instructions on it."""
    mine = tile((4, 8))
    nisa.memset(mine, 0.0, engine=engine)
    for _ in range(steps):
        nisa.memset(mine, 1.0, engine=engine)
    return mine


def profiled(function: Any, *arrays: Any) -> Any:
    return nki.profile(nki.jit(function)[2], target="trn2")(*arrays)


@pytest.mark.parametrize("late", [0, 1])
def test_the_first_at_a_barrier_waits_for_the_other(late: int) -> None:
    def kernel(x):
        slots = shared((4, 8))
        work(200 if nl.program_id(0) == late else 1)
        nisa.core_barrier(slots, (0, 1))
        return both(work(1))

    found = profiled(kernel, X).timeline
    places = [
        next(i for i, charge in enumerate(trace.charges) if charge.kind == "barrier")
        for trace in found.traces
    ]
    starts = [trace.start[index] for trace, index in zip(found.traces, places)]
    assert starts[0] == starts[1]
    assert starts[late] == found.traces[late].end[places[late] - 1]
    delays = found.traces[1 - late].delays[places[1 - late]]
    assert [reason for reason, _ in delays] == [BARRIER]
    assert places[late] not in found.traces[late].delays
    waits = [wait for wait in found.waits if wait.reason == BARRIER]
    assert {wait.core for wait in waits} == {1 - late} and {wait.engine for wait in waits} == {"gpsimd"}
    assert sum(wait.end_ps - wait.start_ps for wait in waits) == delays[0][1]


def test_what_a_barrier_makes_visible_is_read_after_it() -> None:
    def kernel(x):
        slots = shared((2, 4, 8))
        nisa.dma_copy(dst=slots[nl.program_id(0)], src=work(100 if nl.program_id(0) else 1))
        nisa.core_barrier(slots, (0, 1))
        theirs = tile((4, 8))
        nisa.dma_copy(dst=theirs, src=slots[1 - nl.program_id(0)], dge_mode=nisa.dge_mode.hwdge)
        return both(theirs)

    found = profiled(kernel, X).timeline
    stored = max(trace.visible[sorted(trace.moves)[-3]] for trace in found.traces)
    for trace in found.traces:
        barrier = next(i for i, charge in enumerate(trace.charges) if charge.kind == "barrier")
        assert trace.start[barrier] >= stored
        assert trace.start[barrier + 1] >= trace.visible[barrier]


def test_data_of_an_exchange_move_when_both_have_come() -> None:
    def kernel(x):
        mine, theirs = work(150 if nl.program_id(0) else 1), tile((4, 8))
        exchange(mine, theirs)
        return both(theirs)

    found = profiled(kernel, X).timeline
    first, second = (min(trace.moves.values(), key=lambda move: move.issued) for trace in found.traces)
    assert first.ready < second.ready == second.met == first.met <= first.start
    assert (
        any(step.reason == BARRIER for step in profiled(kernel, X).critical_path) or first.done <= second.done
    )


def test_exchanges_in_another_order_on_each_core() -> None:
    def kernel(x):
        mine = [work(3), work(90)]
        theirs = [tile((4, 8)), tile((4, 8))]
        for pipe in (0, 1) if nl.program_id(0) else (1, 0):
            exchange(mine[pipe], theirs[pipe], pipe)
        return both(theirs[0]), both(theirs[1])

    found = profiled(kernel, X).timeline
    one, other = ([*trace.moves.values()][:2] for trace in found.traces)
    for here, there in ((one[0], other[1]), (one[1], other[0])):
        assert here.met == there.met == max(here.ready, there.ready)


def test_exchanges_that_need_each_other_are_reported() -> None:
    def kernel(x):
        me = nl.program_id(0)
        tiles = [work(1), tile((4, 8)), tile((4, 8))]
        first, second = (0, 1) if me else (1, 0)
        exchange(tiles[0], tiles[1], first)
        exchange(tiles[1], tiles[2], second)
        return both(tiles[2])

    with pytest.raises(errors.DeadlockError):
        nki.simulate(nki.jit(kernel)[2], target="trn2")(X)
    with pytest.raises(errors.DeadlockError, match="circle"):
        profiled(kernel, X)


@given(scripts(6))
def test_both_cores_meet_at_one_time(script: Any) -> None:
    def kernel(x):
        return play(x, script)

    x = np.zeros((2, 4, 4, 6), np.float32)
    found = nki.profile(nki.jit(kernel)[2], target="trn2")(x).timeline
    assert found.latency_ps == max(trace.latency_ps for trace in found.traces)
    barriers = [
        [trace.start[i] for i, charge in enumerate(trace.charges) if charge.kind == "barrier"]
        for trace in found.traces
    ]
    assert barriers[0] == barriers[1]
    for trace in found.traces:
        assert all(move.issued <= move.ready <= move.met <= move.start for move in trace.moves.values())
