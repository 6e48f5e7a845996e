"""Time worked out by hand: every case is a few figures of `nki/target_*.py` added up."""

from __future__ import annotations

from itertools import pairwise

import pytest

from interpreter.timing import time_program
from nki import dtypes
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.passes.dependencies import dependencies
from nki.target import get_target
from tests.interpreter.timed import (
    COMPLETE,
    ISSUE,
    MOVING,
    NS,
    START,
    STORING,
    bank,
    hbm,
    move,
    near,
    program,
    starts,
    tile,
    timed,
    timed_state,
    timed_sum,
    window,
    work,
)

V, S, G, T, SYNC = Engine.vector, Engine.scalar, Engine.gpsimd, Engine.tensor, Engine.sync
TRN2 = get_target("trn2")


# --- engines and semaphores ------------------------------------------------------------------------------------------


def test_interval_and_latency_are_apart() -> None:
    # Vector at 0.96 GHz: 96 cycles are 100 ns. The second does not wait for the first one's latency.
    run = timed(work(V, tile("x"), cycles=96, latency=48), work(V, tile("y"), cycles=96, latency=48))
    assert starts(run, "vector") == [0, 100 * NS]
    assert run.latency_ps == (100 + 100 + 50 + 10) * NS  # and the semaphore


def test_handing_over_to_another_engine() -> None:
    x, y = tile("x"), tile("y")
    run = timed(work(V, x, cycles=96, latency=48), work(S, y, x, cycles=120))
    assert starts(run, "scalar") == [(150 + 10 + 20) * NS]
    assert [(w.engine, w.reason, w.because_of) for w in run.waits] == [
        ("scalar", "data", 0),
        ("scalar", "semaphore", 0),
    ]


def test_dependent_instructions_of_one_engine() -> None:
    # Published (trn1): a Scalar instruction of one element lasts 159 ns, dependent ones start 189 ns apart.
    x = tile("x")
    run = timed(*(work(S, x, x, cycles=64, latency=159) for _ in range(3)), target="trn1")
    gaps = [b - a for a, b in pairwise(starts(run, "scalar"))]
    assert gaps == [pytest.approx(189 * NS, rel=0.01)] * 2


def test_an_engine_keeps_its_own_order_without_waiting() -> None:
    x, y = tile("x"), tile("y")
    run = timed(work(V, y, x, cycles=96, latency=480), work(V, x, cycles=96, latency=480))
    assert starts(run, "vector") == [0, 100 * NS]
    run = timed(work(S, x, cycles=120, cls=timed_state), work(S, y, cycles=120, latency=120, cls=timed_state))
    assert starts(run, "scalar") == [0, 100 * NS]


def test_a_buffer_that_is_still_read() -> None:
    x, y = tile("x"), tile("y")
    run = timed(work(S, y, x, cycles=1200), work(V, x, cycles=96))
    assert starts(run, "vector") == [1030 * NS]
    assert [w.reason for w in run.waits] == ["buffer", "semaphore"]


# --- Tensor engine ---------------------------------------------------------------------------------------------------


def product(columns: int, load: int = 32) -> tuple[Phase, ...]:
    """LoadStationary and MultiplyMoving."""
    return Phase(load, 117, "load_stationary", background=True), Phase(columns, 400, "multiply_moving")


def test_weights_are_loaded_behind_the_multiplication() -> None:
    made = [work(T, bank(f"p{i}", i), tile(f"x{i}"), phases=product(128)) for i in range(4)]
    begin = [
        e.start_ps
        for e in timed(*made, target="trn1").events
        if e.lane == "tensor" and e.kind == "multiply_moving"
    ]
    cycle = NS / 2.8
    assert begin[0] == 0  # its own weights first: that time counts as work
    assert [b - a for a, b in pairwise(begin[1:])] == [near(128 * cycle)] * 2
    assert begin[1] == near((32 + 117 + 128) * cycle)


def test_slow_weights_bound_the_engine() -> None:
    made = [work(T, bank(f"p{i}", i), tile(f"x{i}"), phases=product(128, load=512)) for i in range(4)]
    ends = [e.end_ps for e in timed(*made, target="trn1").events if e.kind == "multiply_moving"]
    assert [b - a for a, b in pairwise(ends)] == [near(512 * NS / 2.8)] * 3


def test_the_array_starts_at_half_rate() -> None:
    # Published (trn2): products of 512 columns start about 421 ns apart at first; at 2.4 GHz it is 213 ns.
    made = [work(T, bank(f"p{i}", i % 8, 512), tile(f"x{i}"), phases=(Phase(512),)) for i in range(16)]
    begin = starts(timed(*made), "tensor")
    gaps = [b - a for a, b in pairwise(begin)]
    assert gaps[:7] == [near(426_667)] * 7
    assert gaps[8:] == [near(213_333)] * 7
    assert starts(timed(*made, target="trn1"), "tensor")[1] == near(512 * NS / 2.8)


def test_sums_follow_each_other_at_once() -> None:
    acc = bank("acc", 0)
    made = [work(T, acc, tile(f"x{i}"), phases=(Phase(128, 400),), cls=timed_sum) for i in range(3)]
    assert starts(timed(*made, target="trn1"), "tensor")[:2] == [0, near(128 * NS / 2.8)]


# --- tables, ports, banks --------------------------------------------------------------------------------------------


def test_tables_are_loaded_when_they_change() -> None:
    made = [
        work(S, tile(f"x{i}"), phases=(Phase(120, table=table),))
        for i, table in enumerate(["exp", "exp", "tanh", None])
    ]
    run = timed(*made)
    load = 1283 * NS
    assert starts(run, "scalar") == [load, load + 100 * NS, 2 * load + 200 * NS, 2 * load + 300 * NS]
    assert run.engines["scalar"].waits == {"table_load": 2 * load}


@pytest.mark.parametrize("schedule", ["program", "compiler"])
def test_a_table_is_loaded_when_the_data_are_there(schedule: str) -> None:
    """Both profiles of nki-dma-overview.rst show the load after the semaphore of the data."""
    x = tile("x")
    made = (work(V, x, cycles=960), work(S, tile("y"), x, phases=(Phase(120, table="exp"),)))
    run = timed(*made, schedule=schedule)
    assert starts(run, "scalar") == [1000 * NS + 30 * NS + 1283 * NS]
    assert sum(step.ps for step in run.critical_path if step.reason == "table_load") == 1283 * NS


def test_a_shared_port_is_held_by_one() -> None:
    vector = work(V, tile("x"), phases=(Phase(96, ports=("port",)),))
    pool = work(G, tile("y"), phases=(Phase(120, ports=("port",)),))
    run = timed(vector, pool)
    assert starts(run, "gpsimd") == [100 * NS]
    assert [w.reason for w in run.waits] == ["port_conflict"]


def test_one_psum_bank_serves_one_engine() -> None:
    a, b, other = bank("a", 3), bank("b", 4), window(bank("c", 3, 16), (0, 128), (8, 16))
    first = work(V, tile("x"), a, cycles=96)
    assert starts(timed(first, work(S, tile("y"), b, cycles=120)), "scalar") == [0]
    run = timed(first, work(S, tile("y"), other, cycles=120))
    assert starts(run, "scalar") == [100 * NS]
    assert [w.reason for w in run.waits] == ["bank_conflict"]


# --- schedules -------------------------------------------------------------------------------------------------------


def stream(count: int) -> list[object]:
    """Load, work, store, again and again, all DMAs started by Sync."""
    made: list[object] = []
    for i in range(count):
        source, target = tile(f"i{i}", (128, 256)), tile(f"o{i}", (128, 256))
        made.append(move(source, hbm(f"x{i}", (128, 256), role="argument")))
        made.append(work(V, target, source, cycles=960))
        made.append(move(hbm(f"y{i}", (128, 256)), target))
    return made


def test_a_store_holds_up_the_next_load_only_in_program_order() -> None:
    kept, free = timed(*stream(20)), timed(*stream(20), schedule="compiler")
    alone = timed(*stream(1)).latency_ps
    assert kept.latency_ps > 20 * 0.7 * alone
    assert free.latency_ps < alone + 19 * 1.02e6  # the Vector engine's microsecond is all there is
    assert free.schedule == "compiler"


def test_auto_keeps_the_order_of_kernels_that_fix_it() -> None:
    for flags, expected in (((), "compiler"), (("fixed_order",), "program")):
        made = program(*stream(2), flags=flags)  # type: ignore[arg-type]
        assert time_program(made, dependencies(made)).schedule == expected


def test_loads_wait_for_tensors_that_are_written() -> None:
    scratch, t, u = hbm("scratch", (128, 512)), tile("t", (128, 512)), tile("u", (128, 512))
    run = timed(move(scratch, t), move(u, scratch), schedule="compiler")
    assert run.latency_ps == near(2 * (ISSUE + START + COMPLETE) + MOVING + STORING + 20 * NS)


# --- the answer ------------------------------------------------------------------------------------------------------


def test_what_a_load_costs_its_reader() -> None:
    x, y = tile("x", (128, 512)), tile("y")
    run = timed(move(x, hbm("s", (128, 512))), work(V, y, x, cycles=96))
    waits = [(w.reason, w.end_ps - w.start_ps) for w in run.waits]
    assert waits == [
        ("issue", ISSUE),
        ("dma_latency", START),
        ("dma_bandwidth", near(MOVING)),
        ("dma_latency", COMPLETE),
        ("semaphore", 20 * NS),
    ]
    assert [(s.number, s.reason, s.ps) for s in run.critical_path] == [
        (0, "issue", ISSUE),
        (0, "dma_latency", START),
        (0, "dma_bandwidth", near(MOVING)),
        (0, "dma_latency", COMPLETE),
        (1, "semaphore", 20 * NS),
        (1, "execute", 100 * NS),
        (1, "semaphore", 10 * NS),
    ]


def test_launch_is_reported_apart() -> None:
    assert timed(work(V, tile("x"))).launch_ps == TRN2.launch_start_ps + TRN2.launch_end_ps


def test_cores_run_side_by_side() -> None:
    made = program(work(V, tile("x"), cycles=960))
    made.cores.append([work(S, tile("y"), cycles=2400), work(S, tile("z"), cycles=2400)])
    run = time_program(made, dependencies(made))
    assert run.latency_ps == 4010 * NS
    assert [step.number for step in run.critical_path] == [1, 2, 2]
    assert run.engines["vector"].idle_ps == (1010 - 1000 + 4010) * NS
    assert {event.core for event in run.events} == {0, 1}


def test_nothing_takes_no_time() -> None:
    run = timed()
    assert (run.latency_ps, run.events, run.waits, run.critical_path) == (0, (), (), ())
    assert run.dma.bytes_per_ns == 0


def test_a_tile_of_another_type_is_no_other_cost() -> None:
    wide = timed(move(tile("t", (128, 512)), hbm("s", (128, 512))))
    narrow = timed(
        move(tile("t", (128, 1024), dtype=dtypes.bfloat16), hbm("s", (128, 1024), dtypes.bfloat16))
    )
    assert wide.latency_ps == narrow.latency_ps
