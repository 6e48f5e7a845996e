"""`nisa.nonzero_with_count` against the documented loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, down, f32, interval, run, up


def listed(row: Any, offset: int = 0, padding: int = -1) -> list[int]:
    """Rule 107: indices, padding, count."""
    found = [i + offset for i, value in enumerate(row) if value != 0]
    return [*found, *[padding] * (len(row) - len(found)), len(found)]


def test_documented_example() -> None:
    row = np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32)
    found = run(nisa.nonzero_with_count, dst=Out((1, 9), nl.int32), src=row, index_offset=16, padding_val=-1)
    assert found.tolist() == [[17, 18, 21, -1, -1, -1, -1, -1, 3]]


@pytest.mark.parametrize("dtype", [f32, np.int32])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_rule_107_first_partition_of_each_core(dtype: Any, density: float) -> None:
    """The other partitions keep what they hold, the slot of the count included."""
    chance = np.random.default_rng(5)
    src = np.where(chance.random((128, 40)) < density, chance.integers(1, 9, (128, 40)), 0).astype(dtype)
    found = run(
        nisa.nonzero_with_count,
        dst=Out((128, 41), nl.int32, fill=77),
        src=src,
        index_offset=-3,
        padding_val=5,
    )
    for p in range(128):
        assert found[p].tolist() == ([77] * 41 if p % 16 else listed(src[p], -3, 5)), p


def test_partitions_count_from_the_tile_and_dimensions_are_flattened() -> None:
    def lower(dst: Any, src: Any) -> None:
        nisa.memset(dst=dst, value=0)
        nisa.nonzero_with_count(dst=dst[32:52], src=src[32:52])

    src = np.zeros((64, 2, 3), f32)
    src[32, 1, 0] = src[48, 0, 2] = -1.5
    found = run(lower, dst=Out((64, 7), nl.int32), src=src)
    assert found[32].tolist() == [3, -1, -1, -1, -1, -1, 1] and found[48].tolist() == [
        2,
        -1,
        -1,
        -1,
        -1,
        -1,
        1,
    ]
    assert not found[[p for p in range(64) if p not in (32, 48)]].any()


def test_nan_and_negative_zero() -> None:
    """-0.0 is zero; NaN is not (the page is silent about it)."""
    found = run(
        nisa.nonzero_with_count, dst=Out((1, 4), nl.int32), src=np.array([[-0.0, np.nan, 1e-45]], f32)
    )
    assert found.tolist() == [[1, 2, -1, 2]]


def test_indices_wrap_at_32_bits() -> None:
    found = run(
        nisa.nonzero_with_count, dst=Out((1, 3), nl.int32), src=np.ones((1, 2), f32), index_offset=2**31 - 1
    )
    assert found.tolist() == [[2**31 - 1, -(2**31), 2]]


@nki.jit
def unwritten(src):
    tile = nl.ndarray((16, 5), dtype=nl.int32, buffer=nl.sbuf)
    nisa.nonzero_with_count(dst=tile, src=up(src))
    return down(tile)


@nki.jit
def unread(src):
    tile = nl.ndarray((32, 4), dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[0:1], src=src[0:1])
    nisa.dma_copy(dst=tile[16:17], src=src[1:2])
    found = nl.ndarray((32, 5), dtype=nl.int32, buffer=nl.sbuf)
    nisa.nonzero_with_count(dst=found, src=tile)
    return down(found[0:1]), down(found[16:17])


def test_rule_107_other_partitions_are_neither_read_nor_written() -> None:
    """So they need no values before, and have none after."""
    first, second = nki.simulate(unread)(np.eye(2, 4, dtype=f32))
    assert first.tolist() == [[0, -1, -1, -1, 1]] and second.tolist() == [[1, -1, -1, -1, 1]]
    with pytest.raises(errors.UninitializedReadError, match=r"1:16|0:16"):
        nki.simulate(unwritten)(np.zeros((16, 4), f32))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"dst": Out((4, 8), nl.int32)}, errors.OperandShapeError, "one element more"),
        ({"dst": Out((4, 9), nl.float32)}, errors.OperandDtypeError, "int32"),
        ({"src": np.ones((4, 8), np.uint8)}, errors.OperandDtypeError, "float32"),
        ({"src": np.ones((3, 8), f32)}, errors.OperandShapeError, "dimension P"),
        ({"padding_val": 2**31}, errors.LimitError, "32-bit"),
        ({"index_offset": 1.5}, errors.ArgumentError, "integer"),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"dst": Out((4, 9), nl.int32), "src": np.ones((4, 8), f32), **changes}
    with pytest.raises(error, match=words) as raised:
        run(nisa.nonzero_with_count, **given)
    assert raised.value.remedy  # type: ignore[attr-defined]


def test_not_on_trn1() -> None:
    with pytest.raises(errors.TargetError, match="trn2 and later"):
        run(nisa.nonzero_with_count, "trn1", dst=Out((1, 5), nl.int32), src=np.ones((1, 4), f32))


def test_cost() -> None:
    given = {"dst": Out((1, 1001), nl.int32), "src": np.ones((1, 1000), f32)}
    assert interval(nisa.nonzero_with_count, "trn2", **given) == 150 + 2 * 1000
