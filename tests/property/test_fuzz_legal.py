"""Random legal programs give the same bits planned, eagerly, and from their printed text."""

from __future__ import annotations

import os
from typing import Any

import pytest

from nki.ir.parser import parse_program
from nki.ir.printer import print_program
from tests.property.playing import difference, eagerly, inputs, planned
from tests.property.programs import Maker

QUICK = 25
COUNT = int(os.environ.get("NKI_FUZZ_COUNT", QUICK))
PARTS = 10 if COUNT > QUICK else 1
SIZE = 30


def check(seed: int) -> Any:
    """One program in three ways; returns its outcome."""
    maker = Maker(seed)
    program = maker.make(1 + seed % SIZE).builder.program
    given = inputs(program, seed)
    text = print_program(program)
    eager = eagerly(maker.steps, maker.target, given)
    again = planned(parse_program(text), given)
    first = planned(program, given)
    found = difference(first, again)
    assert not found, f"seed {seed}, planned and printed: {found}"
    found = difference(first, eager)
    assert not found, f"seed {seed}, planned and eager: {found}"
    return first


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_programs(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_CHECK", "0")  # the text is read back here anyway
    outcomes = [check(seed) for seed in range(part, COUNT, PARTS)]
    refused = sum(isinstance(outcome, str) for outcome in outcomes)
    assert refused < len(outcomes) / 4  # an index that leaves its tensor ends a run
