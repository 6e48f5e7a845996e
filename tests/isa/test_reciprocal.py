"""`nisa.reciprocal` against torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, run, same


def test_examples() -> None:
    torch = pytest.importorskip("torch")
    x = np.array([[1, 2, -4, 0.5], [3, -0.1, 1e-30, 1e30]], f32)
    same(run(nisa.reciprocal, dst=Out((2, 4)), data=x), torch.reciprocal(torch.tensor(x)).numpy())


def test_zero_and_infinity() -> None:
    x = np.array([[0.0, -0.0, np.inf, -np.inf]], f32)
    found = run(nisa.reciprocal, dst=Out((1, 4)), data=x)
    assert found.tolist() == [[np.inf, -np.inf, 0.0, 0.0]] and np.signbit(found).tolist() == [[0, 1, 0, 1]]


@given(values=st.lists(st.integers(1, 1000), min_size=1, max_size=16))
def test_integers_pass_through_float32(values: list[int]) -> None:
    """Rule 2: float32 in between, one rounding into bfloat16."""
    x = np.array([values], np.int32)
    found = run(nisa.reciprocal, dst=Out(x.shape, nl.bfloat16), data=x)
    assert found.astype(f32).tolist() == (f32(1) / x.astype(f32)).astype(bf16).astype(f32).tolist()


def test_in_place_from_psum_and_other_shape() -> None:
    """Rules 45 and 46."""

    def twice(dst: object, data: object) -> None:
        nisa.reciprocal(dst=dst, data=data)
        nisa.reciprocal(dst=dst, data=dst)

    x = np.array([[1, 2], [4, 8]], f32)
    assert run(twice, dst=Out((2, 2)), data=Psum(x)).tolist() == x.tolist()
    assert run(nisa.reciprocal, dst=Out((2, 1, 2)), data=x).shape == (2, 1, 2)


def test_no_engine_parameter() -> None:
    with pytest.raises(errors.UnknownKeywordError, match="engine"):
        run(nisa.reciprocal, dst=Out((2, 2)), data=np.ones((2, 2), f32), engine=nisa.engine.vector)


def test_cost() -> None:
    """The published figure: max(64, 8 N)."""
    for width, cycles in ((4, 64), (512, 4096)):
        assert (
            interval(nisa.reciprocal, "trn1", dst=Out((128, width)), data=np.ones((128, width), f32))
            == cycles
        )
