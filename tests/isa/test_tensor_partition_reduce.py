"""`nisa.tensor_partition_reduce` against folds written out."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, bf16, f32, interval, normal, run, same
from tests.isa.tiles import whole_numbers


def test_documented_example() -> None:
    """Rule 83: (128, 32, 4) to (1, 32, 4)."""
    data = whole_numbers((128, 32, 4), -50, 50)
    found = run(nisa.tensor_partition_reduce, dst=Out((1, 32, 4)), op=nl.add, data=data)
    same(found, data.sum(axis=0, keepdims=True))


@pytest.mark.parametrize("op", [nl.add, np.add, "add"])
def test_rule_189_spellings_of_add(op: Any) -> None:
    found = run(nisa.tensor_partition_reduce, dst=Out((1, 3)), op=op, data=whole_numbers((5, 3)))
    assert found.tolist() == [[sum(c) for c in zip(*whole_numbers((5, 3)).tolist())]]


@pytest.mark.parametrize("op", [nl.maximum, nl.max, np.max, "max"])
def test_rule_189_spellings_of_max(op: Any) -> None:
    data = normal((17, 6))
    found = run(nisa.tensor_partition_reduce, dst=Out((1, 6)), op=op, data=data)
    assert found.tolist() == [[max(c) for c in zip(*data.tolist())]]


@pytest.mark.parametrize("op", [nl.average, np.average, "average"])
def test_rule_83_average(op: Any) -> None:
    data = whole_numbers((96, 4), -100, 100)
    found = run(nisa.tensor_partition_reduce, dst=Out((1, 4)), op=op, data=data)
    same(found, (data.astype(np.float64).sum(axis=0, keepdims=True) / 96).astype(f32))


def test_rule_2_one_rounding() -> None:
    """Sums of bfloat16 are made in float32."""
    data = np.full((128, 2), 1 / 256, bf16)
    data[0] = 256
    found = run(nisa.tensor_partition_reduce, dst=Out((1, 2), nl.bfloat16), op=nl.add, data=data)
    same(found, np.full((1, 2), 256 + 127 / 256, f32).astype(bf16))


@pytest.mark.parametrize(("op", "fold"), [(nl.bitwise_or, or_), (nl.bitwise_and, and_)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32])
def test_rule_9_bits(op: Any, fold: Any, dtype: Any) -> None:
    size = np.dtype(dtype).itemsize
    data = np.frombuffer(np.random.default_rng(2).bytes(5 * 7 * size), dtype).reshape(5, 7)
    found = run(nisa.tensor_partition_reduce, dst=Out((1, 7), dtype), op=op, data=data)
    assert found.tolist() == [[reduce(fold, column) for column in data.T.tolist()]]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"op": nl.multiply}, errors.OperatorError, "add, maximum, bitwise_or, bitwise_and"),
        ({"op": nl.minimum}, errors.OperatorError, "folds partitions"),
        ({"op": nl.bitwise_or}, errors.OperandDtypeError, "integers only"),
        (
            {"op": nl.bitwise_or, "data": np.ones((4, 3), np.int32), "dst": Out((1, 3), nl.int16)},
            errors.OperandDtypeError,
            "no width",
        ),
        ({"dst": Out((4, 3))}, errors.OperandShapeError, "1 partition"),
        ({"dst": Out((1, 2))}, errors.OperandShapeError, "dimension F"),
        ({"dst": Out((1, 3), psum=True)}, errors.MemoryError_, "sbuf"),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"dst": Out((1, 3)), "op": nl.add, "data": normal((4, 3)), **changes}
    with pytest.raises(error, match=words) as raised:
        run(nisa.tensor_partition_reduce, **given)
    assert raised.value.remedy or raised.value.allowed  # type: ignore[attr-defined]


def test_cost() -> None:
    given = {"dst": Out((1, 100)), "op": nl.add, "data": normal((4, 100))}
    assert interval(nisa.tensor_partition_reduce, "trn2", **given) == 150 + 16 * 100
