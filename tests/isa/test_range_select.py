"""`nisa.range_select` against explicit loops, and its place in a softmax."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, diagnose, f32, interval, normal, run, same
from tests.isa.tiles import load, sbuf, store

LEAST = float(np.finfo(f32).min)
CMD = nisa.reduce_cmd
COMPARISONS = {
    "equal": operator.eq,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def selected(x: np.ndarray, low: list, high: list, **more: object) -> object:
    arguments = {
        "dst": Out(x.shape),
        "reduce_res": Out((len(x), 1)),
        "on_true_tile": x,
        "comp_op0": nl.greater_equal,
        "comp_op1": nl.less,
        "bound0": np.array(low, f32)[:, None],
        "bound1": np.array(high, f32)[:, None],
        **more,
    }
    return run(nisa.range_select, target="trn2", **arguments)


def test_pc_29_keeps_the_sentinel() -> None:
    x = np.array([[-9, -5, -7, -1]], f32)
    dst, most = selected(x, [0], [3], reduce_op=nl.maximum, on_false_value=float(np.finfo(f32).min))
    assert most.tolist() == [[-5]] and dst.tolist() == [[-9, -5, -7, LEAST]]


@pytest.mark.parametrize("first", COMPARISONS)
@given(
    second=st.sampled_from(sorted(COMPARISONS)),
    start=st.integers(-5, 5),
    bounds=st.tuples(*[st.integers(-4, 9)] * 4),
)
def test_rule_76_comparisons(first: str, second: str, start: int, bounds: tuple[int, ...]) -> None:
    x = np.arange(12, dtype=f32).reshape(2, 6) - 3
    a, b, c, d = bounds
    dst, most = selected(
        x,
        [a, b],
        [c, d],
        comp_op0=getattr(nl, first),
        comp_op1=getattr(nl, second),
        range_start=start,
    )
    holds = [
        [COMPARISONS[first](start + i, low) and COMPARISONS[second](start + i, high) for i in range(6)]
        for low, high in ((a, c), (b, d))
    ]
    golden = [[v if h else LEAST for v, h in zip(row, hs)] for row, hs in zip(x.tolist(), holds)]
    assert dst.tolist() == golden and most.tolist() == [[max(row)] for row in golden]


def test_rule_76_the_fill_is_fixed() -> None:
    x = np.ones((1, 4), f32)
    for fill in (LEAST, -3.4028235e38, np.float32(LEAST)):
        assert selected(x, [0], [0], on_false_value=fill)[0].tolist() == [[LEAST] * 4]
    for fill in (0.0, float("-inf"), -1e30):
        with pytest.raises(errors.RuleError, match="`on_false_value` is FP32_MIN"):
            selected(x, [0], [0], on_false_value=fill)


def test_rule_76_operators() -> None:
    x = np.ones((1, 4), f32)
    with pytest.raises(errors.OperatorError, match="`comp_op1`"):
        selected(x, [0], [1], comp_op1=nl.not_equal)
    with pytest.raises(errors.OperatorError, match="`reduce_op`"):
        selected(x, [0], [1], reduce_op=nl.add)
    assert selected(x, [0], [1], reduce_op=np.max)[1].tolist() == [[1]]


def test_rule_77_index_runs_over_all_free_axes() -> None:
    x = normal((2, 3, 4))
    dst, _ = selected(x, [5, 0], [9, 1])
    golden = np.full((2, 12), LEAST, f32)
    golden[0, 5:9], golden[1, 0] = x[0].reshape(-1)[5:9], x[1, 0, 0]
    assert np.array_equal(dst.reshape(2, 12), golden)


def test_rule_77_indices_are_float32() -> None:
    """2^24 + 1 is no float32: it compares as 2^24. The instruction warns."""
    x = np.ones((1, 3), f32)
    arguments = {"comp_op0": nl.equal, "comp_op1": nl.equal, "range_start": (1 << 24) - 1}
    dst, _ = selected(x, [1 << 24], [1 << 24], **arguments)
    assert dst.tolist() == [[LEAST, 1, 1]]
    found = diagnose(
        nisa.range_select,
        target="trn2",
        dst=Out((1, 3)),
        on_true_tile=x,
        bound0=x[:, :1],
        bound1=x[:, :1],
        **arguments,
    )
    assert [d.severity for d in found] == ["warning"] and "2^24" in found[0].message


@pytest.mark.parametrize("dtype", [nl.bfloat16, nl.float16, nl.float8_e5m2])
def test_rules_6_76_177_narrow_results(dtype: object) -> None:
    """FP32_MIN arrives as minus infinity in a narrow dst; the maximum is that of the float32 values."""
    x = np.array([[1.001, 2.001, 3.001], [1, 2, 3]], f32)
    dst, most = selected(x, [0, 9], [2, 9], dst=Out((2, 3), dtype))
    assert np.isneginf(dst.astype(f32)[0, 2]) and np.isneginf(dst.astype(f32)[1]).all()
    assert most.tolist() == [[float(f32(2.001))], [LEAST]]


def test_rule_76_a_masked_row_of_a_softmax_is_zero() -> None:
    @nki.jit
    def kernel(x, low, high):
        scores, most, out = sbuf(x.shape, nl.bfloat16), sbuf((2, 1)), sbuf(x.shape)
        nisa.range_select(
            dst=scores,
            on_true_tile=load(x),
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=load(low),
            bound1=load(high),
            reduce_res=most,
        )
        nisa.tensor_scalar(dst=out, data=scores, op0=nl.subtract, operand0=most)
        nisa.activation(dst=out, op=nl.exp, data=out)
        return store(out)

    x = np.array([[1, 2, 3], [1, 2, 3]], f32)
    found = nki.simulate(kernel, target="trn2")(x, np.array([[0], [5]], f32), np.array([[2], [5]], f32))
    np.testing.assert_allclose(found[0], [np.exp(-1), 1, 0], rtol=1e-6)
    assert not found[1].any()


def test_rules_74_75_chain() -> None:
    """The published chaining example: registers carry the maximum over three tiles."""

    @nki.jit
    def kernel(x, low, high):
        tile, a, b, out, most = load(x), load(low), load(high), sbuf(x.shape), sbuf((x.shape[0], 1))
        for i in range(3):
            nisa.range_select(
                dst=out,
                on_true_tile=tile,
                comp_op0=nl.greater_equal,
                comp_op1=nl.less,
                bound0=a,
                bound1=b,
                reduce_cmd=CMD.reset_reduce if i == 0 else CMD.reduce,
                reduce_res=most if i == 2 else None,
                reduce_op=nl.max,
                range_start=32 + 128 * i,
            )
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        return store(out), store(most)

    x = np.random.default_rng(0).random((128, 512), f32)
    out, most = nki.simulate(kernel, target="trn2")(x, np.zeros((128, 1), f32), np.full((128, 1), 350, f32))
    golden = np.full((128, 1), -np.inf, f32)
    for i in range(3):
        index = 32 + 128 * i + np.arange(512)
        last = np.where(index < 350, x, f32(LEAST))
        golden = np.maximum(golden, last.max(axis=1, keepdims=True))
        x = x + f32(1)
    assert np.array_equal(out, last) and np.array_equal(most, golden)


def test_rule_74_commands() -> None:
    x = np.ones((1, 4), f32)
    for command in (CMD.reset, CMD.load_reduce):
        with pytest.raises(errors.RuleError, match="`reduce_cmd` is a command"):
            selected(x, [0], [1], reduce_cmd=command)


def test_in_place() -> None:
    @nki.jit
    def kernel(x, low, high):
        tile = load(x)
        nisa.range_select(tile, tile, nl.greater, nl.less, load(low), load(high))
        return store(tile)

    x = normal((2, 8))
    found = nki.simulate(kernel, target="trn2")(x, np.full((2, 1), 1, f32), np.full((2, 1), 6, f32))
    assert np.array_equal(found[:, 2:6], x[:, 2:6]) and (found[:, [0, 1, 6, 7]] == LEAST).all()


def test_warnings() -> None:
    """Rules 74 and 76: a narrow maximum, and registers that nothing was folded into."""
    x = normal((1, 4), bf16)
    arguments = {
        "dst": Out((1, 4), nl.bfloat16),
        "on_true_tile": x,
        "comp_op0": nl.less,
        "comp_op1": nl.less,
        "bound0": np.ones((1, 1), f32),
        "bound1": np.ones((1, 1), f32),
    }
    found = diagnose(nisa.range_select, "trn2", reduce_res=Out((1, 1), nl.bfloat16), **arguments)
    assert len(found) == 1 and "should be float32" in found[0].message
    found = diagnose(nisa.range_select, "trn2", reduce_res=Out((1, 1)), reduce_cmd=CMD.idle, **arguments)
    assert len(found) == 1 and "undefined" in found[0].message
    assert not diagnose(nisa.range_select, "trn2", reduce_res=Out((1, 1)), **arguments)


def test_refusals() -> None:
    x = np.ones((1, 4), f32)
    with pytest.raises(errors.TargetError, match="does not exist on trn1"):
        run(
            nisa.range_select,
            target="trn1",
            dst=Out((1, 4)),
            on_true_tile=x,
            comp_op0=nl.less,
            comp_op1=nl.less,
            bound0=x[:, :1],
            bound1=x[:, :1],
        )
    with pytest.raises(errors.OperandDtypeError, match="`bound0` cannot be int32"):
        selected(x, [0], [1], bound0=np.ones((1, 1), np.int32))
    with pytest.raises(errors.OperandDtypeError, match="`on_true_tile` cannot be int32"):
        selected(x.astype(np.int32), [0], [1])
    with pytest.raises(errors.OperandShapeError, match="`bound1` must have 1"):
        selected(x, [0], [1], bound1=x)
    with pytest.raises(errors.ArgumentError, match="`range_start`"):
        selected(x, [0], [1], range_start=0.5)


def test_psum_and_cost() -> None:
    x = normal((2, 500))
    dst, _ = selected(x, [0, 0], [500, 500], on_true_tile=Psum(x), dst=Out(x.shape, psum=True))
    same(dst, x)
    arguments = {"on_true_tile": x, "comp_op0": nl.less, "comp_op1": nl.less}
    bounds = {"bound0": x[:, :1], "bound1": x[:, :1], "reduce_res": Out((2, 1))}
    assert interval(nisa.range_select, "trn2", dst=Out(x.shape), **arguments, **bounds) == 500
