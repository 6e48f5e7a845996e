"""Random programs for two cores, with exchanges, barriers, loops and shared memory, against a sequential oracle."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
import nki.language as nl
from nki import errors
from tests.property.scripts import SHAPE, TILES, Step, expected, play, scripts

PROGRAMS = 300
"""Of the long Hypothesis profile; the usual profile makes its own few."""

KERNEL = nki.jit(play)


def inputs(dtype: Any, seed: int) -> np.ndarray:
    """Tiles of both cores."""
    return np.random.default_rng(seed).integers(-8, 9, (2, TILES, *SHAPE)).astype(dtype)


@settings(max_examples=min(settings().max_examples, PROGRAMS))
@given(scripts(), st.sampled_from([np.float32, ml_dtypes.bfloat16]), st.sampled_from(["trn2", "trn3"]))
def test_values_are_those_of_the_oracle(script: list[Step], dtype: Any, target: str) -> None:
    x = inputs(dtype, seed=len(script))
    found = nki.simulate(KERNEL[2], target=target)(x, script)
    assert found.tobytes() == expected(x, script).tobytes()


@settings(max_examples=min(settings().max_examples, PROGRAMS) // 3)
@given(scripts(4), st.sampled_from(["exchange", "barrier"]), st.integers(0, 1))
def test_one_arrival_too_many_is_a_deadlock(script: list[Step], kind: str, core: int) -> None:
    """Whatever comes before: a rendezvous that one core alone comes to is reported, and nothing hangs."""
    alone = ("exchange", (0, 0), (0, 0), 0, False) if kind == "exchange" else ("barrier",)
    with pytest.raises(errors.DeadlockError) as caught:
        nki.simulate(nki.jit(play_unequally)[2], target="trn2")(inputs(np.float32, 0), script, core, alone)
    assert len(caught.value.notes) == 2


def play_unequally(x, script, core, extra):
    return play(x, [*script, extra] if nl.program_id(0) == core else script)
