"""`nisa.affine_select` against explicit loops."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, bf16, f32, interval, normal, run, same
from tests.isa.test_iota import affine

LOWEST = float(np.finfo(f32).min)
COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def causal(x: object, **arguments: object) -> dict[str, object]:
    return {
        "pattern": [[-1, 4]],
        "channel_multiplier": 1,
        "on_true_tile": x,
        "on_false_value": LOWEST,
        "cmp_op": nl.greater_equal,
        **arguments,
    }


def test_causal_mask() -> None:
    """Rules 76 and 103: a Python float as the fill."""
    torch = pytest.importorskip("torch")
    x = normal((4, 4))
    expected = torch.tensor(x).masked_fill(torch.ones(4, 4).triu(1).bool(), LOWEST)
    same(run(nisa.affine_select, dst=Out((4, 4)), **causal(x)), expected.numpy())


@given(
    pattern=st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 3)).map(list), min_size=1, max_size=4),
    numbers=st.tuples(st.integers(-5, 5), st.integers(-3, 3)),
    cmp=st.sampled_from(sorted(COMPARISONS)),
)
def test_patterns(pattern: list[list[int]], numbers: tuple[int, int], cmp: str) -> None:
    """Rule 103."""
    values = affine(3, pattern, *numbers)
    x = normal((3, len(values[0])))
    expected = [
        [x[p, i] if COMPARISONS[cmp](v, 0) else f32(-1.5) for i, v in enumerate(row)]
        for p, row in enumerate(values)
    ]
    found = run(
        nisa.affine_select,
        dst=Out(x.shape),
        pattern=pattern,
        offset=numbers[0],
        channel_multiplier=numbers[1],
        on_true_tile=x,
        on_false_value=-1.5,
        cmp_op=getattr(nl, cmp),
    )
    same(found, np.array(expected, f32))


def test_the_default_comparison_is_equal() -> None:
    x = np.full((3, 3), 7, np.int32)
    found = run(
        nisa.affine_select,
        dst=Out((3, 3), nl.int32),
        pattern=[[-1, 3]],
        channel_multiplier=1,
        on_true_tile=x,
        on_false_value=0,
    )
    assert found.tolist() == (7 * np.eye(3, dtype=int)).tolist()


def test_equal_types_keep_bits() -> None:
    """Rule 18."""
    x = np.full((2, 2), 2**24 + 1, np.int32)
    found = run(
        nisa.affine_select, dst=Out((2, 2), nl.int32), **causal(x, pattern=[[-1, 2]], on_false_value=0.0)
    )
    assert found.tolist() == [[2**24 + 1, 0], [2**24 + 1, 2**24 + 1]]
    found = run(
        nisa.affine_select, dst=Out((2, 2), nl.uint32), **causal(x, pattern=[[-1, 2]], on_false_value=0.0)
    )
    assert found.tolist() == [[2**24, 0], [2**24, 2**24]]


def test_narrow_fill() -> None:
    """Rules 6 and 18: the fill is a float32 number, rounded into `dst`."""
    x = np.ones((4, 4), bf16)
    found = run(nisa.affine_select, dst=Out((4, 4), nl.bfloat16), **causal(x))
    assert found.astype(f32)[0].tolist() == [1, -np.inf, -np.inf, -np.inf]


def test_in_place() -> None:
    """Rule 46."""

    def mask(dst: object, x: object) -> None:
        nisa.tensor_copy(dst=dst, src=x)
        nisa.affine_select(dst=dst, **causal(dst))

    x = normal((4, 4))
    same(run(mask, dst=Out((4, 4)), x=x), np.where(np.tri(4, dtype=bool), x, f32(LOWEST)))


def test_comparisons_only() -> None:
    """Rule 190."""
    with pytest.raises(errors.OperatorError, match="comparison"):
        run(nisa.affine_select, dst=Out((4, 4)), **causal(np.ones((4, 4), f32), cmp_op=nl.add))


def test_pattern_must_fit() -> None:
    """Rule 103."""
    with pytest.raises(errors.OperandShapeError, match="gives 3 values"):
        run(nisa.affine_select, dst=Out((4, 4)), **causal(np.ones((4, 4), f32), pattern=[[1, 3]]))


def test_sbuf_only() -> None:
    """Rule 103."""
    with pytest.raises(errors.MemoryError_, match="sbuf"):
        run(nisa.affine_select, dst=Out((4, 4), psum=True), **causal(np.ones((4, 4), f32)))


def test_cost() -> None:
    x = np.ones((128, 512), f32)
    assert interval(nisa.affine_select, "trn2", dst=Out(x.shape), **causal(x, pattern=[[-1, 512]])) == 662
