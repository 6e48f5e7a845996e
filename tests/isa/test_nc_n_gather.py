"""`nisa.nc_n_gather` against loops; `nl.gather_flattened` is its form on new tiles."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, bf16, down, f32, interval, normal, run, up


def indices(rows: int, columns: int, most: int) -> Any:
    return np.random.default_rng(3).integers(0, most, (rows, columns)).astype(np.uint32)


def gathered(data: Any, index: Any) -> Any:
    """Rule 105, written out."""
    flat = data.reshape(len(data), -1)
    return np.array(
        [[flat[p, k] for k in row] for p, row in enumerate(index.reshape(len(data), -1))], data.dtype
    )


def test_by_hand() -> None:
    data = np.array([[1, 2, 3], [4, 5, 6]], f32)
    index = np.array([[2, 2, 0, 1], [0, 1, 2, 0]], np.uint32)
    found = run(nisa.nc_n_gather, dst=Out((2, 4)), data=data, indices=index)
    assert found.tolist() == [[3, 3, 1, 2], [4, 5, 6, 4]]


@pytest.mark.parametrize("dtype", [f32, bf16, np.int8, np.uint16, ml_dtypes.float8_e5m2])
def test_rule_105_bits_move(dtype: Any) -> None:
    size = np.dtype(dtype).itemsize
    data = np.frombuffer(np.random.default_rng(0).bytes(7 * 12 * size), dtype).reshape(7, 12)
    index = indices(7, 20, 12)
    found = run(nisa.nc_n_gather, dst=Out((7, 20), dtype), data=data, indices=index)
    assert found.tobytes() == gathered(data, index).tobytes()


def test_rule_105_free_dimensions_are_flattened() -> None:
    data, index = normal((128, 3, 5)), indices(128, 8, 15).reshape(128, 2, 4)
    found = run(nisa.nc_n_gather, dst=Out((128, 4, 2)), data=data, indices=index)
    np.testing.assert_array_equal(found.reshape(128, 8), gathered(data, index))


def test_views() -> None:
    def gather(dst: Any, data: Any, index: Any) -> None:
        nisa.memset(dst=dst, value=0.0)
        nisa.nc_n_gather(dst=dst[:, 1:6:2], data=data[:, ::2], indices=index[:, 3:6])

    data, index = normal((4, 10)), indices(4, 6, 5)
    found = run(gather, dst=Out((4, 8)), data=data, index=index)
    expected = np.zeros((4, 8), f32)
    expected[:, 1:6:2] = gathered(data[:, ::2], index[:, 3:6])
    np.testing.assert_array_equal(found, expected)


def test_in_place() -> None:
    """`dst` may be `data`: everything is read first."""

    def reverse(dst: Any, index: Any) -> None:
        nisa.iota(dst=dst, pattern=[[1, 4]])
        nisa.nc_n_gather(dst=dst, data=dst, indices=index)

    index = np.array([[3, 2, 1, 0]] * 2, np.uint32)
    assert run(reverse, dst=Out((2, 4), nl.int32), index=index).tolist() == [[3, 2, 1, 0]] * 2


def test_rule_105_index_outside() -> None:
    index = np.zeros((4, 3), np.uint32)
    index[2, 1] = 5
    with pytest.raises(errors.BoundsError) as raised:
        run(nisa.nc_n_gather, dst=Out((4, 3)), data=normal((4, 5)), indices=index)
    assert "index 5 in partition 2 of `indices`" in str(raised.value)
    assert raised.value.allowed == "0 to 4" and raised.value.span is not None
    assert raised.value.operand == "indices[2, 1]"
    index[2, 1] = 2**32 - 1
    with pytest.raises(errors.BoundsError, match="4294967295"):
        run(nisa.nc_n_gather, dst=Out((4, 3)), data=normal((4, 5)), indices=index)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"indices": indices(4, 3, 5).astype(np.int32)}, errors.OperandDtypeError),
        ({"dst": Out((4, 3), nl.bfloat16)}, errors.OperandDtypeError),
        ({"dst": Out((4, 2))}, errors.OperandShapeError),
        ({"data": normal((5, 5))}, errors.OperandShapeError),
        ({"dst": Out((4, 3), psum=True)}, errors.MemoryError_),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception]) -> None:
    given = {"dst": Out((4, 3)), "data": normal((4, 5)), "indices": indices(4, 3, 5), **changes}
    with pytest.raises(error) as raised:
        run(nisa.nc_n_gather, **given)
    assert raised.value.remedy  # type: ignore[attr-defined]


def test_cost() -> None:
    given = {"dst": Out((4, 100)), "data": normal((4, 5)), "indices": indices(4, 100, 5)}
    assert interval(nisa.nc_n_gather, "trn1", **given) == 150 + 8 * 100


@nki.jit
def flattened(data, index, options):
    return down(nl.gather_flattened(up(data), up(index), **options))


def test_gather_flattened() -> None:
    """Rule 105: every fifth element, as in the documentation."""
    data, index = normal((32, 64)), np.tile(np.arange(0, 50, 5, dtype=np.uint32), (32, 1))
    simulate = nki.simulate(flattened)
    np.testing.assert_array_equal(simulate(data, index, {}), np.take_along_axis(data, index, axis=-1))
    halves = simulate(data, index, {"dtype": nl.bfloat16, "axis": 1})
    np.testing.assert_array_equal(halves, gathered(data, index).astype(bf16))


def test_gather_flattened_other_axis() -> None:
    with pytest.raises(errors.ArgumentError, match="axis"):
        nki.simulate(flattened)(normal((2, 3)), indices(2, 3, 3), {"axis": 2})
