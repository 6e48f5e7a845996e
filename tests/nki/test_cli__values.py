"""Words of the command line: literals, arrays, casts on load; nothing is ever executed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki.cli.values import UsageError, cast_array, parse_arguments, parse_value
from nki.dtypes import as_dtype


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("3", 3),
        ("-2.5", -2.5),
        ("True", True),
        ("None", None),
        ("'text'", "text"),
        ("(1, 2)", (1, 2)),
        ("[1, 'a']", [1, "a"]),
        ("{'a': 1}", {"a": 1}),
    ],
)
def test_literals(word: str, value: Any) -> None:
    found = parse_value(word)
    assert found == value and type(found) is type(value)


def test_keywords_and_positions() -> None:
    assert parse_arguments(["1", "a=2", "b='x=y'"]) == ([1], {"a": 2, "b": "x=y"})


def test_nothing_is_executed() -> None:
    for word in ("__import__('os')", "open('x')", "lambda: 1", "1 + a"):
        with pytest.raises(UsageError):
            parse_value(word)


def test_casts_are_the_machines() -> None:
    wide = np.array([0.5, 1.5, 2.5, 1e10, -1e10, np.nan])
    assert cast_array(wide, as_dtype("int8")).tolist() == [0, 2, 2, 127, -128, 0]
    assert cast_array(np.array([300, -5]), as_dtype("float16")).tolist() == [300, -5]
    assert cast_array(wide, as_dtype("bfloat16")).dtype == ml_dtypes.bfloat16
    long = np.array([1 << 40, -(1 << 40), 0])
    assert cast_array(long, as_dtype("float32")).tolist() == [2.0**40, -(2.0**40), 0]
    assert cast_array(long, as_dtype("int16")).tolist() == [32767, -32768, 0]
    assert cast_array(long.astype(np.uint64), as_dtype("int8")).tolist() == [127, 127, 0]
    assert cast_array(long, as_dtype("bool")).tolist() == [True, True, False]
    for array in (long.astype(np.complex64), np.array(["a"]), np.zeros(2, "V3")):
        with pytest.raises(UsageError, match="cannot be cast"):
            cast_array(array, as_dtype("float32"))
