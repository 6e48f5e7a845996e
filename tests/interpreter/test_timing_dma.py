"""The time of data movement, worked out by hand from the figures of `nki/target_dma.py`."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nki.enums import dge_mode
from nki.enums import engine as Engine
from nki.ir.instruction import Instruction
from tests.interpreter.timed import (
    COMPLETE,
    HARDWARE,
    ISSUE,
    MOVING,
    NS,
    SOFTWARE,
    START,
    STATIC,
    hbm,
    move,
    near,
    starts,
    tile,
    timed,
)

S, G, SYNC = Engine.scalar, Engine.gpsimd, Engine.sync


FLOOR = 150 * NS  # between two DMAs of a queue


def load(name: str = "t", mode: dge_mode = STATIC, engine: Engine = SYNC) -> Instruction:
    """A load of [128, 512] float32."""
    return move(tile(name, (128, 512)), hbm(name + "_source", (128, 512)), mode, engine)


@pytest.mark.parametrize(
    ("mode", "engine", "before"),
    [
        (STATIC, SYNC, 150 + 856),
        (SOFTWARE, G, 870 + 739 + 370),  # the last of the 16 engines starts so much later
        (HARDWARE, SYNC, 9 + 600 + 739),
        (HARDWARE, S, 9 + 600 + 739),
    ],
)
def test_one_transfer(mode: dge_mode, engine: Engine, before: int) -> None:
    run = timed(load(mode=mode, engine=engine))
    assert run.latency_ps == near(before * NS + MOVING + COMPLETE)
    assert [e.lane for e in run.events] == [engine.name, run.events[1].lane]
    assert run.events[1].lane.startswith("dma")


def test_static_descriptors_for_all() -> None:
    assert timed(load(mode=SOFTWARE, engine=G), dge="static").latency_ps == timed(load()).latency_ps


def test_software_descriptors_are_issued_one_after_the_other() -> None:
    # Published (trn2): GpSimd issues one 128-row load every 608 ns.
    run = timed(*(load(f"t{i}", SOFTWARE, G) for i in range(4)))
    assert [b - a for a, b in pairwise(starts(run, "gpsimd"))] == [608 * NS] * 3
    rows = move(tile("r", (128, 512)), hbm("s", (128, 512)), SOFTWARE, G, rows=512)
    assert timed(rows).engines["gpsimd"].busy_ps == 4 * 608 * NS


def test_bandwidth_is_shared() -> None:
    # 32 KiB a row: 8 rows on each engine take 11.4 us, far longer than the least interval of the queue.
    wide = [move(tile(f"t{i}", (128, 8192)), hbm(f"s{i}", (128, 8192))) for i in range(3)]
    each = 8 * 32768 * NS * NS / 23_000 + 8 * 5 * NS
    run = timed(*wide)
    assert run.latency_ps == near(ISSUE + START + 3 * each + COMPLETE)
    assert run.dma.bytes == 3 * 128 * 32768
    assert run.dma.transfers == 3
    assert run.dma.bytes_per_ns == pytest.approx(16 * 23, rel=0.01)
    assert run.dma.busy_ps == (near(3 * each),) * 16


def test_small_rows_are_bound_by_the_queue() -> None:
    small = [move(tile(f"t{i}", (128, 16)), hbm(f"s{i}", (128, 16))) for i in range(4)]
    begin = [e.start_ps for e in timed(*small).events if e.lane.startswith("dma")]
    assert [b - a for a, b in pairwise(begin)] == [FLOOR] * 3


def test_few_rows_use_few_engines() -> None:
    run = timed(move(tile("t", (12, 512), at=(4, 0)), hbm("s", (12, 512))))
    row = 2048 * NS * NS / 23_000 + 5 * NS
    assert run.dma.busy_ps == (near(4 * row), near(8 * row), *[0] * 14)
    within = timed(move(hbm("a", (16, 512)), hbm("b", (16, 512))))
    assert within.dma.busy_ps == (near(row),) * 16


def test_transfers_on_different_engines_do_not_share() -> None:
    low, high = (tile(name, (64, 8192), at=(at, 0)) for name, at in (("low", 0), ("high", 64)))
    both = timed(move(low, hbm("a", (64, 8192))), move(high, hbm("b", (64, 8192))))
    one = timed(move(low, hbm("a", (64, 8192))))
    assert both.latency_ps == one.latency_ps + FLOOR
