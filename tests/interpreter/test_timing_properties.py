"""What must hold for the time of any program: bounds, monotony, determinism, a complete account, linear cost."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter.timing import time_program
from interpreter.timing.resources import Shared
from interpreter.timing.timeline import REASONS, Timeline
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.dependency import Dependency, DependencyKind
from nki.ir.instruction import Instruction
from nki.passes.dependencies import dependencies
from nki.target import Target, get_target
from tests.interpreter.timed import (
    HARDWARE,
    SOFTWARE,
    STATIC,
    bank,
    hbm,
    move,
    program,
    tile,
    timed_sum,
    work,
)

COMPUTE = (Engine.vector, Engine.scalar, Engine.gpsimd)
SCHEDULES = ("program", "compiler")
Found = list[list[list[Dependency]]]


@st.composite
def instructions(draw: Any, most: int = 14) -> list[Instruction]:
    """Loads, stores, products and other work on a few tiles, some of which share an address."""
    wide = [tile(f"t{i}", (128, 64), at=(0, 256 * (i % 3))) for i in range(4)]
    narrow = [tile(f"n{i}", (8, 64), at=(32 * i, 1024)) for i in range(2)]
    banks = [bank(f"p{i}", i % 2, 64) for i in range(3)]
    inputs = [hbm("x", (128, 64), role="argument"), hbm("y", (8, 64), role="argument")]
    outputs = [hbm("u", (128, 64)), hbm("v", (8, 64))]
    pick = st.sampled_from
    made: list[Instruction] = []
    for _ in range(draw(st.integers(1, most))):
        kind = draw(pick(["load", "store", "product", "work", "work"]))
        size = draw(pick([0, 1]))
        some = draw(pick((wide, narrow)[size]))
        mode, issuer = draw(
            pick([(STATIC, Engine.sync), (SOFTWARE, Engine.gpsimd), (HARDWARE, Engine.scalar)])
        )
        if kind == "load":
            made.append(move(some, draw(pick([inputs[size], outputs[size]])), mode, issuer))
        elif kind == "store":
            made.append(move(outputs[size], some, mode, issuer))
        elif kind == "product":
            cycles = draw(st.integers(1, 2000))
            phases = (Phase(draw(st.integers(1, 600)), 117, "load", background=True), Phase(cycles, 400))
            made.append(
                work(Engine.tensor, draw(pick(banks)), draw(pick(wide)), phases=phases, cls=timed_sum)
            )
        else:
            phases = (
                Phase(
                    draw(st.integers(1, 3000)),
                    draw(st.integers(0, 300)),
                    table=draw(pick([None, "exp", "tanh"])),
                    ports=draw(pick([(), ("port",)])),
                ),
            )
            made.append(work(draw(pick(COMPUTE)), some, draw(pick([*wide, *banks])), phases=phases))
    return made


def run(
    made: list[Instruction], schedule: str, found: Found | None = None, target: Target | None = None
) -> Timeline:
    whole = program(*made, target=target or "trn2")
    return time_program(whole, found if found is not None else dependencies(whole), schedule=schedule)


schedules = st.sampled_from(SCHEDULES)
targets = st.sampled_from(["trn1", "trn2", "trn3"]).map(get_target)


@given(instructions(), schedules, targets)
def test_between_the_busiest_engine_and_everything_in_turn(
    made: list[Instruction], schedule: str, target: Target
) -> None:
    whole = run(made, schedule, target=target)
    assert all(use.busy_ps <= whole.latency_ps for use in whole.engines.values())
    assert all(busy <= whole.latency_ps for busy in whole.dma.busy_ps)
    assert sum(step.ps for step in whole.critical_path) == whole.latency_ps
    alone = [run([instruction], schedule, target=target).latency_ps for instruction in made]
    assert max(alone) <= whole.latency_ps + target.scalar_table_load_ps + target.tensor_warmup_ps
    assert whole.latency_ps <= sum(alone) + len(made) * target.semaphore_wake_ps


@given(instructions(), schedules)
def test_every_picosecond_is_accounted_for(made: list[Instruction], schedule: str) -> None:
    whole = run(made, schedule)
    for use in whole.engines.values():
        assert use.busy_ps + sum(use.waits.values()) + use.idle_ps == whole.latency_ps
        assert set(use.waits) <= set(REASONS)
        assert min(use.waits.values(), default=1) > 0
    assert {step.reason for step in whole.critical_path} <= set(REASONS)
    assert all(wait.because_of is None or wait.because_of < wait.index for wait in whole.waits)


@given(instructions())
def test_queues_are_in_order(made: list[Instruction]) -> None:
    whole = run(made, "program")
    lanes = defaultdict(list)
    behind = {(index, start) for trace in whole.traces for index, start, _, _ in trace.background}
    for event in whole.events:
        if (event.index, event.start_ps) not in behind and not event.lane.startswith("dma"):
            lanes[event.lane].append(event)
    for events in lanes.values():
        assert all(b.start_ps >= a.end_ps and b.index > a.index for a, b in pairwise(events))


@given(instructions(), schedules)
def test_nobody_starts_before_what_it_needs(made: list[Instruction], schedule: str) -> None:
    whole = run(made, schedule)
    found = dependencies(program(*made))[0]
    trace = whole.traces[0]
    for index, of_one in enumerate(found):
        for dependency in of_one:
            if dependency.kind is DependencyKind.RAW or dependency.on in trace.moves:
                assert trace.start[index] > trace.visible[dependency.on]


@given(instructions(), schedules, st.data())
def test_one_more_dependency_never_helps(made: list[Instruction], schedule: str, data: Any) -> None:
    found = dependencies(program(*made))
    before = run(made, schedule, found).latency_ps
    later = data.draw(st.integers(0, len(made) - 1))
    earlier = data.draw(st.integers(0, max(0, later - 1)))
    kind = data.draw(st.sampled_from([DependencyKind.ORDER, DependencyKind.RAW]))
    if earlier < later:
        found[0][later] = [*found[0][later], Dependency(earlier, kind, "")]
    assert run(made, schedule, found).latency_ps >= before


@given(instructions(), schedules, st.data())
def test_more_work_never_helps(made: list[Instruction], schedule: str, data: Any) -> None:
    found = dependencies(program(*made))
    before = run(made, schedule, found).latency_ps
    longer = made[data.draw(st.integers(0, len(made) - 1))]
    more = data.draw(st.integers(1, 3000))
    if longer.phases[-1].transfer is None:
        longer.phases = (
            *longer.phases[:-1],
            replace(longer.phases[-1], interval=longer.phases[-1].interval + more),
        )
    else:
        transfer = longer.phases[-1].transfer
        bigger = replace(transfer, descriptor_bytes=transfer.descriptor_bytes + more)
        longer.phases = (replace(longer.phases[-1], transfer=bigger),)
    assert run(made, schedule, found).latency_ps >= before


@given(
    instructions(),
    schedules,
    st.sampled_from([f"{name}_clock_mhz" for name in ("tensor", "vector", "scalar", "gpsimd")]),
)
def test_a_slower_clock_never_helps(made: list[Instruction], schedule: str, clock: str) -> None:
    target = get_target("trn2")
    slower = replace(target, **{clock: getattr(target, clock) * 2 // 3})
    whole = program(*made)
    found = dependencies(whole)
    fast = time_program(whole, found, schedule=schedule)
    slow = time_program(whole, found, schedule=schedule, target=slower)
    assert slow.latency_ps >= fast.latency_ps


@given(instructions(), targets)
def test_a_compiler_never_loses_against_the_order_as_written(made: list[Instruction], target: Target) -> None:
    kept, free = (run(made, schedule, target=target).latency_ps for schedule in SCHEDULES)
    assert free <= kept


@given(instructions(), schedules)
def test_the_same_program_takes_the_same_time(made: list[Instruction], schedule: str) -> None:
    assert run(made, schedule).events == run(made, schedule).events


@given(instructions())
def test_an_engine_with_nothing_to_do_changes_nothing(made: list[Instruction]) -> None:
    other = work(Engine.sync, tile("elsewhere", at=(0, 8192)), cycles=1)
    busy = [event for event in run(made, "program").events if event.lane != "sync"]
    found = dependencies(program(*made, other))
    also = [
        event
        for event in run([*made, other], "program", found).events
        if event.lane != "sync" and event.index < len(made)
    ]
    assert also == busy


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 20)), min_size=1, max_size=12), st.data())
def test_a_shared_resource(uses: list[tuple[int, int]], data: Any) -> None:
    """The stack finds what its definition says, and later arrivals or more work never make anything earlier."""

    def finishes(uses: list[tuple[int, int]]) -> list[int]:
        shared = Shared()
        return [shared.serve(ready, service) for ready, service in uses]

    found = finishes(uses)
    for i in range(len(uses)):
        runs = [uses[j : i + 1] for j in range(i + 1)]
        assert found[i] == max(min(r for r, _ in part) + sum(s for _, s in part) for part in runs)
    which = data.draw(st.integers(0, len(uses) - 1))
    ready, service = uses[which]
    later = [*uses[:which], (ready + data.draw(st.integers(0, 50)), service + data.draw(st.integers(0, 9)))]
    later += uses[which + 1 :]
    assert all(b >= a for a, b in zip(found, finishes(later)))


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_linear(schedule: str) -> None:
    def per_instruction(count: int) -> float:
        made: list[Instruction] = []
        for i in range(count // 4):
            source, result = (
                tile(f"{n}{i}", (128, 256), at=(0, 1024 * ((2 * i + k) % 200))) for k, n in enumerate("st")
            )
            made.append(move(source, hbm(f"x{i}", (128, 256), role="argument")))
            made.append(work(Engine.tensor, bank(f"p{i}", i % 8, 256), source, cycles=256))
            made.append(work(Engine.vector, result, bank(f"p{i}", i % 8, 256), cycles=256))
            made.append(move(hbm(f"y{i}", (128, 256)), result, SOFTWARE, Engine.gpsimd))
        whole = program(*made)
        found = dependencies(whole)
        times = []
        for _ in range(3):
            begin = time.process_time()
            time_program(whole, found, schedule=schedule)
            times.append(time.process_time() - begin)
        return min(times) / count

    assert per_instruction(40_000) < 1.5 * per_instruction(4_000)
