"""The accuracy benchmark itself: its list of rows, its measures of error, and that a figure is what it says."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.cases import CASES, device_us, duration_ns, host_us
from benchmarks.accuracy.kernels import register
from benchmarks.accuracy.measure import Result, kendall_tau, measure, summaries, traces
from benchmarks.accuracy.page import page
from benchmarks.accuracy.rows import CALIBRATION, EXCLUDED, published
from benchmarks.accuracy.sensitivity import estimates, sensitivities
from nki.target import get_target

register()
ROWS = published()


def test_every_row_is_made_or_says_why_not() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS) >= 190
    for row in ROWS:
        assert row.evidence, row.id
        assert (row.use == EXCLUDED) != (row.id in CASES), row.id
        assert row.target in ("trn1", "trn2", "trn3"), row.id
        assert row.schedule in ("auto", "program", "compiler") and row.dge in ("auto", "static"), row.id
        assert row.value > 0


def test_no_constant_comes_from_a_whole_kernel_of_a_trace() -> None:
    chosen = [row for row in ROWS if row.use == CALIBRATION]
    assert {row.kind for row in chosen} <= {"probe", "small", "compiler"}
    assert {row.id for row in chosen if row.kind == "compiler"} == {"ko-v2", "ko-v2-dma", "ko-v3-dma"}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=8))
def test_kendall_tau_is_the_textbook_one(pairs: list[tuple[int, int]]) -> None:
    """Counted over the sign of every pair, with the correction for ties of tau-b."""
    signs = [(np.sign(a - b), np.sign(x - y)) for (a, x), (b, y) in itertools.combinations(pairs, 2)]
    total = sum(int(s * t) for s, t in signs)
    left, right = (sum(1 for sign in side if sign) for side in zip(*signs))
    expected = total / math.sqrt(left * right) if left and right else 0.0
    assert kendall_tau([(float(a), float(x)) for a, x in pairs]) == pytest.approx(expected)


def test_close_pairs_can_be_left_out() -> None:
    pairs = [(1.0, 101.0), (2.0, 100.0), (3.0, 200.0)]
    assert kendall_tau(pairs) == pytest.approx(1 / 3)
    assert kendall_tau(pairs, 1.05) == 1.0


def test_errors_are_alike_to_both_sides() -> None:
    row = next(row for row in ROWS if row.kind == "probe")
    assert Result(row, row.value * 1.25).error == pytest.approx(0.25)
    assert Result(row, row.value / 1.25).error == pytest.approx(0.25)


def some(*ids: str) -> list[Result]:
    return measure([row for row in ROWS if row.id in ids])


def test_a_few_rows_and_their_page() -> None:
    results = some("act-128", "act-4096", "tt-8192-128p", "cs149-2-vector_add_stream-FREE_DIM-200")
    assert len(results) == 4 and all(result.error < 0.15 for result in results)
    found = {total.kind: total for total in summaries(results)}
    assert found["probe"].count == 3 and found["small"].count == 1
    assert traces(results) == {}
    text = page(ROWS, results, [])
    assert "`act-128`" in text and "What the model leaves out" in text and "ko-v4" in text


def test_host_figures_add_the_launch() -> None:
    timed = CASES["act-128"]().timed("trn2")
    launch = timed.timeline.target.launch_start_ps + timed.timeline.target.launch_end_ps
    assert host_us(timed) - device_us(timed) == pytest.approx(launch / 1e6)
    assert duration_ns("activation")(timed) == pytest.approx(293 + 128 / 1.2, abs=2)


def test_sensitivity_sees_what_a_prediction_rests_on() -> None:
    row = next(row for row in ROWS if row.id == "cs149-2-vector_add_stream-FREE_DIM-200")
    found = {one.name: one for one in sensitivities([row])}
    launch = get_target("trn2").launch_start_ps
    whole = CASES[row.id]().figure(CASES[row.id]().timed("trn2")) * 1e6
    expected = max(1 / (1 - launch / 2 / whole), 1 + launch / whole) - 1
    assert found["launch_start_ps"].worst == pytest.approx(expected, rel=1e-3)
    assert "tensor_warmup_ps" not in found
    assert "dma_hwdge_start_ps" in estimates()
