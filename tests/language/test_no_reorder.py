"""`nl.no_reorder`: the order is kept, and loops on the device cannot stand inside (semantics rule 128)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki import errors
from tests.language.both import add, both, f32
from tests.language.run import down, up


def _loop() -> None:
    nl.fori_loop(0, 2, lambda i: None)


def _range() -> None:
    for _ in nl.dynamic_range(3):
        pass


@pytest.mark.parametrize("loop", [_loop, _range])
def test_loops_on_the_device_are_refused_inside_and_in_functions_called_there(
    loop: Callable[[], None],
) -> None:
    @nki.jit
    def kernel(x):
        with nl.no_reorder():
            loop()
        return down(up(x))

    with pytest.raises(errors.KernelError, match=r"cannot stand inside nl\.no_reorder"):
        nki.simulate(kernel, target="trn2")(np.zeros((1, 1), f32))


def test_it_may_stand_in_a_loop_and_fixes_the_order() -> None:
    @nki.jit
    def kernel(x):
        t: Any = up(x)
        for _ in nl.dynamic_range(3):
            with nl.no_reorder():
                for _ in range(2):
                    add(t, 1.0)
        nl.fori_loop(0, 2, lambda i: add(t, 1.0))
        return down(t)

    x = np.zeros((1, 1), f32)
    assert both(kernel, x) == 8
    assert "fixed_order" in kernel.ir(x, target="trn2").flags
    assert nki.profile(kernel, target="trn2")(x).timeline.schedule == "program"
