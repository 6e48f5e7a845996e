"""`nisa.tensor_clamp` against NumPy's clip."""

from __future__ import annotations

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run, same

LEGAL = {
    "low": 0.5,
    "high": 2.5,
}  # optional: with a range, the sweep over the registry sees more than one value
X = np.array([[-3, -1, 0.5, 4], [7, 1, -8, 2]], f32)


def test_worked_example() -> None:
    found = run(nisa.tensor_clamp, dst=Out((2, 4)), data=X, low=-1, high=2.5)
    assert found.tolist() == [[-1, -1, 0.5, 2.5], [2.5, 1, -1, 2]]


def test_bounds_by_partition() -> None:
    low, high = np.array([[-2], [0]], f32), np.array([[0], [3]], f32)
    found = run(nisa.tensor_clamp, dst=Out((2, 4)), data=Psum(X), low=low, high=high)
    same(found, np.clip(X, low, high))


@pytest.mark.parametrize(("dtype", "stored"), [(nl.bfloat16, bf16), (nl.int16, np.int16)])
def test_one_rounding(dtype: str, stored: type) -> None:
    x = 100 * normal((16, 33))
    found = run(nisa.tensor_clamp, dst=Out(x.shape, dtype), data=x, low=-50.25, high=99)
    clipped = np.clip(x, f32(-50.25), f32(99))
    same(found, (np.rint(clipped) if stored is np.int16 else clipped).astype(stored))


def test_nan_stays() -> None:
    found = run(nisa.tensor_clamp, dst=Out((1, 2)), data=np.array([[np.nan, 5]], f32), low=0, high=1)
    assert np.isnan(found[0, 0]) and found[0, 1] == 1


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(errors.ArgumentError, match=r"range is not empty(.|\n)*pass low=1, high=2"):
        run(nisa.tensor_clamp, dst=Out((2, 4)), data=X, low=2, high=1)


def test_cost_is_one_pass() -> None:
    x = normal((128, 1024))
    found = [
        interval(nisa.tensor_clamp, t, dst=Out(x.shape), data=x, low=0, high=1) for t in ("trn1", "trn2")
    ]
    assert found == [1024, 512]
