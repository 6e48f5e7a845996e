"""Time of loops on the device: that of the unrolled loop, a turn more for every pass, and waits for registers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from interpreter.timing import time_program
from interpreter.timing.timeline import LOOP, Timeline
from nki.compiled import Compiled
from nki.ir.dependency import DependencyKind
from nki.ir.instruction import Instruction
from nki.ir.order import executed
from nki.passes.dependencies import dependencies
from nki.target import get_target
from tests.language.both import add, f32, number, register_of, tile
from tests.language.run import down, up

TURN = get_target("trn2").loop_iteration_ps
X = np.zeros((64, 256), f32)


def summing(loop: Callable[[], Any]) -> Any:
    """A kernel that loads, computes on two engines and stores in every pass of `loop()`."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, nl.float32, nl.shared_hbm)
        total, part = tile(x.shape, 0.0), nl.ndarray(x.shape, nl.float32)
        for _ in loop():
            nisa.dma_copy(dst=part, src=x)
            nisa.activation(dst=part, data=part, op=nl.exp)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.dma_copy(dst=out, src=total)
        return out

    return kernel


def timeline(kernel: Any, *arrays: Any, schedule: str = "program") -> Timeline:
    found: Timeline = nki.profile(kernel, target="trn2", schedule=schedule)(*arrays).timeline
    return found


@pytest.mark.parametrize("schedule", ["program", "compiler"])
@pytest.mark.parametrize("passes", [1, 2, 7])
def test_a_loop_takes_as_long_as_unrolled_and_its_turns(passes: int, schedule: str) -> None:
    looped = timeline(summing(lambda: nl.dynamic_range(passes)), X, schedule=schedule)
    flat = timeline(summing(lambda: range(passes)), X, schedule=schedule)
    assert len(looped.traces[0].charges) == len(flat.traces[0].charges)
    assert flat.latency_ps <= looped.latency_ps <= flat.latency_ps + passes * TURN + 4 * TURN
    assert sum(step.ps for step in looped.critical_path) == looped.latency_ps
    for name, unit in looped.engines.items():
        assert unit.busy_ps == flat.engines[name].busy_ps
        if name in ("vector", "scalar"):
            assert unit.waits.get(LOOP, 0) <= passes * TURN
        whole = unit.busy_ps + sum(unit.waits.values()) + unit.idle_ps
        assert whole == looped.latency_ps


def test_turns_show_where_an_engine_has_nothing_else_to_wait_for() -> None:
    def busy(loop: Callable[[], Any]) -> Any:
        @nki.jit
        def kernel(x):
            tiles = [up(x) for _ in range(4)]
            for _ in loop():
                for t in tiles:  # each waits for the pass before, which is over by then
                    add(t, 1.0)
            return tuple(down(t) for t in tiles)

        return kernel

    looped, flat = (timeline(busy(loop), X) for loop in (lambda: nl.dynamic_range(9), lambda: range(9)))
    assert (
        looped.latency_ps == flat.latency_ps + 8 * TURN
    )  # the first turn is taken while the data are loaded
    assert looped.engines["vector"].waits[LOOP] == 9 * TURN
    assert sum(step.ps for step in looped.critical_path if step.reason == LOOP) == 8 * TURN


def test_static_loops_are_timed_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("values were computed")

    monkeypatch.setattr(Compiled, "_execute", refuse)
    kernel = summing(lambda: nl.dynamic_range(2, 12, 3))
    profile = nki.profile(kernel, target="trn2")
    first, again = profile(X), profile(X)
    assert first.timeline is again.timeline
    assert sum(unit.instructions for unit in first.timeline.engines.values()) == 1 + 4 * 3 + 1
    assert first.to_json() and str(first)


def counting(n: Any) -> Any:
    r = register_of(n)
    t = tile((64, 256), 0.0)
    for _ in nl.dynamic_range(r):
        add(t, 1.0)
    return down(t)


def test_the_trip_count_comes_from_the_values() -> None:
    kernel = nki.jit(counting)
    times = [timeline(kernel, number(n)).latency_ps for n in (0, 1, 5, 6)]
    assert times[0] < times[1] < times[2] < times[3]
    assert times[3] - times[2] == (times[2] - times[1]) // 4
    flat = timeline(kernel, number(6))
    assert sum(unit.instructions for unit in flat.engines.values()) == 5 + 6


def test_nothing_starts_before_the_bound_is_known() -> None:
    """The store of `other` does not depend on the loop's data, but stands behind its test."""

    @nki.jit
    def kernel(n, x):
        r, other = register_of(n), up(x)
        t = tile((64, 256), 0.0)
        for _ in nl.dynamic_range(r):
            add(t, 1.0)
        return down(t), down(other)

    compiled = compiled_of(kernel, number(2), X)
    program = compiled.program
    run = executed(program.cores[0], iter([2]))
    load = index_of(run.instructions, "register_load")
    found = dependencies(flat(program, run.instructions), [run.tests])[0]
    behind = run.tests[0].at
    assert [test.taken for test in run.tests] == [True, True, False]
    for index, waits in enumerate(found):
        told = [d for d in waits if d.on == load and d.operand.startswith("$")]
        assert bool(told) == (index >= behind), index


def index_of(instructions: list[Instruction], mnemonic: str, nth: int = 0) -> int:
    return [i for i, instruction in enumerate(instructions) if instruction.mnemonic == mnemonic][nth]


def compiled_of(kernel: Any, *arrays: Any) -> Compiled:
    from nki.jit import Options

    found: Compiled = kernel.compiled(Options(target="trn2", eager=False), arrays, {})
    return found


def flat(program: Any, instructions: list[Instruction]) -> Any:
    from dataclasses import replace

    return replace(program, cores=[[*instructions]])


def test_a_while_waits_for_its_register_in_every_pass() -> None:
    @nki.jit
    def kernel(n):
        left, t = up(n), tile((64, 256), 0.0)
        reg = nisa.register_alloc(1)
        while reg:
            add(t, 1.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
            nisa.register_load(reg, left)
        return down(t)

    program = compiled_of(kernel, number(3)).program
    run = executed(program.cores[0], iter([3]))
    found = dependencies(flat(program, run.instructions), [run.tests])[0]
    loads = [i for i, instruction in enumerate(run.instructions) if instruction.mnemonic == "register_load"]
    adds = [i for i, instruction in enumerate(run.instructions) if instruction.mnemonic == "tensor_scalar"][
        ::2
    ]
    assert len(loads) == len(adds) == 3
    for load, behind in zip(loads, adds[1:]):
        assert any(d.on == load and d.kind is DependencyKind.RAW for d in found[behind])
    times = [timeline(kernel, number(n)).latency_ps for n in (1, 2, 3)]
    step = get_target("trn2").register_memory_ps
    assert times[2] - times[1] == times[1] - times[0] > step


def test_dependencies_cross_passes() -> None:
    program = compiled_of(summing(lambda: nl.dynamic_range(3)), X).program
    run = executed(program.cores[0], iter(()))
    found = dependencies(flat(program, run.instructions), [run.tests])[0]
    sums = [i for i, instruction in enumerate(run.instructions) if instruction.mnemonic == "tensor_tensor"]
    loads = [i for i, instruction in enumerate(run.instructions) if instruction.mnemonic == "dma_copy"]
    for earlier, later in pairwise(sums):
        assert any(d.on == earlier and d.kind is DependencyKind.RAW for d in found[later])
    for earlier, later in zip(
        sums, loads[1:3]
    ):  # one address for all passes: the load waits for the last reader
        assert any(d.on == earlier for d in found[later])


def test_explicit_orders_hold_in_every_pass() -> None:
    @nki.jit
    def kernel(x):
        a, b = up(x), up(x)
        before = nisa.tensor_copy(dst=a, src=b, engine=nisa.engine.vector)
        for _ in nl.dynamic_range(2):
            first = nisa.memset(dst=a, value=1.0, engine=nisa.engine.vector)
            second = nisa.activation(dst=b, data=b, op=nl.exp)
            second.depends_on(first, before)
        return down(a), down(b)

    program = compiled_of(kernel, X).program
    assert "fixed_order" in program.flags
    run = executed(program.cores[0], iter(()))
    found = dependencies(flat(program, run.instructions), [run.tests])[0]
    firsts = [i for i, instruction in enumerate(run.instructions) if instruction.mnemonic == "memset"]
    seconds = [i for i, instruction in enumerate(run.instructions) if instruction.mnemonic == "activation"]
    copy = index_of(run.instructions, "tensor_copy")
    for first, second in zip(firsts, seconds):
        ordered = {d.on for d in found[second] if d.kind is DependencyKind.ORDER}
        assert first in ordered and copy in {d.on for d in found[second]}


def test_the_parts_of_a_profile_agree() -> None:
    kernel = nki.jit(counting)
    profile = nki.profile(kernel, target="trn2")(number(4))
    again = nki.profile(kernel, target="trn2")(number(4))
    assert str(profile) == str(again) and profile.to_json() == again.to_json()
    runs = executed(compiled_of(kernel, number(4)).program.cores[0], iter([4]))
    program = flat(compiled_of(kernel, number(4)).program, runs.instructions)
    alone = time_program(program, dependencies(program))
    assert alone.latency_ps <= profile.timeline.latency_ps
