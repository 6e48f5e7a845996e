"""`nisa.topk` against sorted lists of (value, position) pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, bf16, f32, interval, normal, run


def outs(partitions: int, k: int) -> dict[str, Any]:
    return {"val_dst": Out((partitions, k), nl.bfloat16), "idx_dst": Out((partitions, k), nl.uint32)}


def snake(row: Any, columns: int) -> Any:
    """Sixteen partitions that hold a row: element i in partition i % 16, column i // 16; the rest NaN."""
    tile = np.full((16, columns), np.nan, bf16)
    for i, value in enumerate(row):
        tile[i % 16, i // 16] = value
    return tile


def test_by_hand() -> None:
    """Rule 108: ascending, with positions in the snake; all sixteen partitions hold the result."""
    row = [3, -1, 8, 8.5, 0, 7, -2, 100, 1, 2, 4, 5, 6, 9, -3, -4, 50]
    values, places = run(nisa.topk, **outs(16, 3), src=snake(row, 2), n=17)
    assert values.astype(f32).tolist() == [[9, 50, 100]] * 16
    assert places.tolist() == [[13, 16, 7]] * 16


@pytest.mark.parametrize(("n", "k"), [(8, 8), (42, 8), (160, 33), (1000, 1)])
def test_rule_108_groups_are_independent(n: int, k: int) -> None:
    rows = np.stack([np.random.default_rng(g).permutation(n) - n / 2 for g in range(3)]).astype(bf16)
    src = np.concatenate([snake(row, -(-n // 16) + 1) for row in rows])
    values, places = run(nisa.topk, **outs(48, k), src=src, n=n)
    for p in range(48):
        row = rows[p // 16].astype(f32)
        pairs = sorted((-v, i) for i, v in enumerate(row.tolist()))[:k][::-1]
        assert values[p].astype(f32).tolist() == [-v for v, _ in pairs]
        assert places[p].tolist() == [i for _, i in pairs]


def test_against_torch() -> None:
    torch = pytest.importorskip("torch")
    rows = normal((8, 700), bf16, seed=4)
    src = np.concatenate([snake(row, 44) for row in rows])
    values, places = run(nisa.topk, **outs(128, 16), src=src, n=700)
    expected = torch.topk(torch.from_numpy(rows.astype(f32)), 16).values.numpy()
    np.testing.assert_array_equal(values[::16, ::-1].astype(f32), expected)
    np.testing.assert_array_equal(
        np.take_along_axis(rows, places[::16].astype(int), 1).astype(f32), values[::16]
    )


def test_rule_108_ties_and_special_values() -> None:
    """Open in the documentation: lower positions win and come last; NaN is smallest, infinities count."""
    row = [1.0, 5, np.nan, 5, 5, -np.inf, np.inf, 0]
    values, places = run(nisa.topk, **outs(16, 8), src=snake(row, 1), n=8)
    assert places[0].tolist() == [2, 5, 7, 0, 4, 3, 1, 6]
    np.testing.assert_array_equal(values[0].astype(f32), [np.nan, -np.inf, 0, 1, 5, 5, 5, np.inf])
    _, places = run(nisa.topk, **outs(16, 2), src=snake(row, 1), n=8)
    assert places[0].tolist() == [1, 6]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"n": 7}, errors.LimitError, "8 to 65535"),
        ({"n": 65536}, errors.LimitError, "8 to 65535"),
        ({"n": 49}, errors.OperandShapeError, "at least 4 columns"),
        ({"n": 8, **outs(16, 9)}, errors.LimitError, "at most 8 for n = 8"),
        ({"src": normal((24, 3), bf16), **outs(24, 4)}, errors.OperandShapeError, "24 partitions"),
        ({"src": normal((16, 3))}, errors.OperandDtypeError, "bfloat16"),
        ({"idx_dst": Out((16, 4), nl.int32)}, errors.OperandDtypeError, "uint32"),
        ({"idx_dst": Out((16, 5), nl.uint32)}, errors.OperandShapeError, "dimension F"),
        (
            {"n": 40000, "src": normal((16, 2500), bf16), **outs(16, 32768)},
            errors.LimitError,
            "at most 32767",
        ),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {**outs(16, 4), "src": normal((16, 3), bf16), "n": 42, **changes}
    with pytest.raises(error, match=words) as raised:
        run(nisa.topk, **given)
    assert raised.value.remedy  # type: ignore[attr-defined]


def test_cost() -> None:
    """Published: 4n + K cycles, here with the start of an instruction."""
    assert interval(nisa.topk, "trn2", **outs(16, 8), src=normal((16, 3), bf16), n=42) == 150 + 4 * 42 + 8
