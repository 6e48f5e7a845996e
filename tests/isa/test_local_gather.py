"""`nisa.local_gather` against loops over groups, partitions and indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.target import get_target
from tests.isa.single import Out, bf16, f32, interval, normal, run


def gathered(src: Any, index: Any, run_length: int, count: int) -> Any:
    """Rule 104, written out: each group of 16 rows has a list, read down the columns of its index."""
    flat = src.reshape(len(src), -1)
    out = np.zeros((len(src), count * run_length), src.dtype)
    for p in range(len(src)):
        start = p // 16 * 16
        for i in range(count):
            k = int(index[start + i % 16, i // 16])
            out[p, i * run_length : (i + 1) * run_length] = flat[p, k : k + run_length]
    return out


def indices(rows: int, columns: int, most: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, most, (rows, columns)).astype(np.uint16)


def test_one_group_by_hand() -> None:
    """Rule 104: the list runs over the partitions first, and every partition uses all of it."""
    src = np.tile(np.arange(32, dtype=f32), (16, 1)) + 100 * np.arange(16, dtype=f32)[:, None]
    index = np.zeros((16, 2), np.uint16)
    index[0, 0], index[1, 0], index[0, 1] = 5, 6, 7
    found = run(nisa.local_gather, dst=Out((16, 32)), src_buffer=src, index=index)
    assert found[0, :2].tolist() == [5, 6] and found[0, 16] == 7
    assert found[3, :2].tolist() == [305, 306] and found[3, 2] == 300


@pytest.mark.parametrize("partitions", [16, 48, 128])
@pytest.mark.parametrize("run_length", [1, 4, 32])
@pytest.mark.parametrize("dtype", [f32, bf16, np.uint8])
def test_rule_104_groups_runs_and_dtypes(partitions: int, run_length: int, dtype: Any) -> None:
    src = (normal((partitions, 96)) * 10).astype(dtype)
    index = indices(partitions, 2, 96 - run_length + 1)
    found = run(
        nisa.local_gather,
        dst=Out((partitions, 32 * run_length), nl.uint8 if dtype is np.uint8 else dtype),
        src_buffer=src,
        index=index,
        num_elem_per_idx=run_length,
    )
    assert found.tobytes() == gathered(src, index, run_length, 32).tobytes()


def test_rule_104_valid_indices_and_documented_shapes() -> None:
    """The example of the documentation: rows of four elements, shapes of four dimensions."""
    src, rows = normal((128, 64, 4)), indices(128, 4, 64)
    found = run(
        nisa.local_gather,
        dst=Out((128, 4, 16, 4)),
        src_buffer=src,
        index=rows * np.uint16(4),
        num_elem_per_idx=4,
        num_valid_indices=64,
    )
    expected = np.zeros((128, 64, 4), f32)
    for p in range(128):
        for i in range(64):
            expected[p, i] = src[p, rows[p // 16 * 16 + i % 16, i // 16]]
    np.testing.assert_array_equal(found.reshape(128, 64, 4), expected)


def test_rule_104_only_valid_indices_are_looked_at() -> None:
    index = np.full((16, 2), 60_000, np.uint16)
    index[:5, 0] = [3, 1, 4, 1, 5]
    src = normal((16, 8))
    found = run(nisa.local_gather, dst=Out((16, 5)), src_buffer=src, index=index, num_valid_indices=5)
    np.testing.assert_array_equal(found, src[:, [3, 1, 4, 1, 5]])


def test_rule_104_into_a_part_of_a_tile() -> None:
    """Release 0.4.0: `dst` may be a view."""

    def into_view(dst: Any, src: Any, index: Any) -> None:
        nisa.memset(dst=dst, value=7.0)
        nisa.local_gather(dst=dst[:, 1:33:2], src_buffer=src, index=index)

    src, index = normal((16, 8)), indices(16, 1, 8)
    found = run(into_view, dst=Out((16, 40)), src=src, index=index)
    expected = np.full((16, 40), 7, f32)
    expected[:, 1:33:2] = gathered(src, index, 1, 16)
    np.testing.assert_array_equal(found, expected)


def test_index_outside_the_tile() -> None:
    index = np.zeros((32, 1), np.uint16)
    index[20, 0] = 9
    with pytest.raises(errors.BoundsError) as raised:
        run(
            nisa.local_gather, dst=Out((32, 32)), src_buffer=normal((32, 10)), index=index, num_elem_per_idx=2
        )
    text = str(raised.value)
    assert "index 9 in partition 20 of `index`" in text and "0 to 8" in text and "remedy" not in text


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (
            {"src_buffer": normal((24, 8)), "index": indices(24, 1, 8), "dst": Out((24, 16))},
            errors.OperandShapeError,
            "24",
        ),
        ({"index": indices(32, 1, 8)}, errors.OperandShapeError, "dimension P"),
        ({"dst": Out((16, 15))}, errors.OperandShapeError, "15 elements per partition, the gather gives 16"),
        ({"dst": Out((16, 16), nl.bfloat16)}, errors.OperandDtypeError, "converts nothing"),
        ({"index": indices(16, 1, 8).astype(np.uint32)}, errors.OperandDtypeError, "uint16"),
        ({"num_elem_per_idx": 3}, errors.LimitError, "1, 2, 4, 8"),
        ({"num_elem_per_idx": 16}, errors.LimitError, "at most the free size"),
        ({"num_valid_indices": 17}, errors.LimitError, "1 to 16"),
        ({"num_valid_indices": 0}, errors.LimitError, "1 to 16"),
        ({"index": indices(16, 257, 8), "dst": Out((16, 4112))}, errors.LimitError, "4096"),
        ({"dst": Out((16, 16), psum=True)}, errors.MemoryError_, "sbuf"),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"dst": Out((16, 16)), "src_buffer": normal((16, 8)), "index": indices(16, 1, 8), **changes}
    with pytest.raises(error, match=words) as raised:
        run(nisa.local_gather, **given)
    assert raised.value.remedy  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("run_length", "dtype", "cycles"), [(1, f32, 32 * 8), (4, f32, 352), (4, bf16, 176), (1, bf16, 32 * 8)]
)
def test_cost(run_length: int, dtype: Any, cycles: int) -> None:
    """The formula of the SDK 2.26 page on top of the start: 32 indices of e (28 + 4e) / 4e cycles."""
    out = Out((16, 32 * run_length), dtype)
    arguments = {"dst": out, "src_buffer": normal((16, 64), dtype), "index": indices(16, 2, 32)}
    found = interval(nisa.local_gather, "trn2", num_elem_per_idx=run_length, **arguments)
    assert found == get_target("trn2").gpsimd_startup_cycles + cycles
