"""What belongs to a loop on the device is not visible outside of it: tensors of its body, and its counter."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.language.both import f32, tile
from tests.language.run import down, up

X = np.zeros((1, 1), f32)
EAGER = pytest.mark.parametrize("eager", [False, True], ids=["planned", "eager"])


def line_of(text: str) -> int:
    """The number of the line of this file that ends with the comment `text`."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


@EAGER
def test_tensors_of_a_body_end_with_it(eager: bool) -> None:
    @nki.jit
    def kernel(x):
        kept = []
        for _ in nl.dynamic_range(2):  # the loop
            t = tile((1, 1), 1.0)  # the tensor
            kept.append(t)
        return down(kept[0])

    with pytest.raises(errors.LoopScopeError, match="`made` was made in the body") as caught:
        nki.simulate(kernel, target="trn2", eager=eager)(X)
    assert f"{__file__}:{line_of('the loop')}" in str(caught.value)
    assert "both.py" in str(caught.value.operand)


@EAGER
def test_a_tensor_of_a_body_cannot_be_returned(eager: bool) -> None:
    @nki.jit
    def kernel(x):
        for _ in nl.dynamic_range(2):
            out = nl.ndarray((1, 1), nl.float32, nl.shared_hbm)
            nisa.dma_copy(dst=out, src=up(x))
        return out

    with pytest.raises(errors.LoopScopeError, match="returned value"):
        nki.simulate(kernel, target="trn2", eager=eager)(X)


@EAGER
def test_a_counter_ends_with_its_loop(eager: bool) -> None:
    @nki.jit
    def kernel(x):
        for i in nl.dynamic_range(2):  # noqa: B007
            up(x)
        at = tile((1, 1), 0, nl.int32)
        nisa.register_store(at, i)
        return down(at)

    with pytest.raises(errors.LoopScopeError, match="has no value outside of it"):
        nki.simulate(kernel, target="trn2", eager=eager)(X)


@EAGER
def test_listing_a_device_range_is_no_loop(eager: bool) -> None:
    @nki.jit
    def kernel(x):
        at = tile((1, 1), 0, nl.int32)
        for i in list(nl.dynamic_range(2)):
            nisa.register_store(at, i)
        return down(at)

    with pytest.raises(errors.LoopScopeError, match="has no value outside of it"):
        nki.simulate(kernel, target="trn2", eager=eager)(X)
