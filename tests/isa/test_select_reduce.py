"""`nisa.select_reduce` against explicit loops."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, diagnose, f32, interval, normal, run, same
from tests.isa.tiles import load, sbuf, store

CMD = nisa.reduce_cmd
LEAST = float(np.finfo(f32).min)
X = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], f32)
P = np.array([[1, 0, 2, 0], [0, 0, 255, 1]], np.uint8)


def test_worked_example() -> None:
    dst = run(nisa.select_reduce, dst=Out((2, 4)), predicate=P, on_true=X, on_false=-1.0)
    assert dst.tolist() == [[1, -1, 3, -1], [-1, -1, 7, 8]]


def test_rule_179_reverse_is_logical_negation() -> None:
    dst = run(nisa.select_reduce, dst=Out((2, 4)), predicate=P, on_true=X, on_false=-1.0, reverse_pred=True)
    assert dst.tolist() == [[-1, 2, -1, 4], [5, 6, -1, -1]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.bool_])
def test_rule_179_predicate_dtypes(dtype: type) -> None:
    predicate = P.astype(np.int16).astype(dtype)
    dst = run(nisa.select_reduce, dst=Out((2, 4)), predicate=predicate, on_true=X, on_false=-1.0)
    assert dst.tolist() == [[1, -1, 3, -1], [-1, -1, 7, 8]]


def test_rule_179_other_predicates_are_refused() -> None:
    for dtype in (np.int32, np.uint32, f32):
        with pytest.raises(errors.OperandDtypeError, match="`predicate` cannot be"):
            run(nisa.select_reduce, dst=Out((2, 4)), predicate=P.astype(dtype), on_true=X, on_false=0.0)


def test_published_example_with_a_column_and_the_maximum() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((128, 512), f32) * 100, rng.random((128, 1), f32) * 100
    p = rng.integers(0, 2, (128, 512)).astype(np.uint8)
    dst, most = run(
        nisa.select_reduce,
        dst=Out(x.shape),
        reduce_res=Out((128, 1)),
        predicate=p,
        on_true=x,
        on_false=y,
        reduce_cmd=CMD.reset_reduce,
        reduce_op=nl.max,
    )
    golden = np.where(p, x, y)
    same(dst, golden)
    same(most, golden.max(axis=1, keepdims=True))


def test_rule_74_negative_maximum() -> None:
    """The fold starts from minus infinity, not from 0."""
    arguments = {"predicate": P, "on_true": -X, "on_false": LEAST, "reduce_cmd": CMD.reset_reduce}
    _, most = run(nisa.select_reduce, dst=Out((2, 4)), reduce_res=Out((2, 1)), **arguments)
    assert most.tolist() == [[-1], [-7]]


def test_rules_74_75_chain() -> None:
    @nki.jit
    def kernel(x, p):
        tile, predicate, out, most = load(x), load(p), sbuf(x.shape), sbuf((2, 1))
        nisa.select_reduce(out, predicate, tile, -9.0, reduce_cmd=CMD.reset_reduce)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=-1.0)
        nisa.select_reduce(out, predicate, tile, -9.0, reduce_res=most, reduce_cmd=CMD.reduce)
        return store(most)

    assert nki.simulate(kernel)(X, P).tolist() == [[3], [8]]


def test_rule_177_the_maximum_is_of_float32() -> None:
    x = np.array([[1.001, 0.5]], f32)
    arguments = {"predicate": np.ones((1, 2), np.int8), "on_true": x, "on_false": 0.0}
    dst, most = run(
        nisa.select_reduce,
        dst=Out((1, 2), nl.bfloat16),
        reduce_res=Out((1, 1)),
        reduce_cmd=CMD.reset_reduce,
        **arguments,
    )
    assert dst.dtype == bf16 and most.tolist() == [[float(f32(1.001))]]


def test_rules_18_176_types_of_the_sides() -> None:
    for dtype in (np.int16, np.uint8, bf16, np.float16):
        dst = run(nisa.select_reduce, dst=Out((2, 4)), predicate=P, on_true=X.astype(dtype), on_false=0.5)
        assert dst.tolist() == [[1, 0.5, 3, 0.5], [0.5, 0.5, 7, 8]]
    for dtype in (np.int32, np.uint32):
        with pytest.raises(errors.OperandDtypeError, match="`on_true` cannot be"):
            run(nisa.select_reduce, dst=Out((2, 4)), predicate=P, on_true=X.astype(dtype), on_false=0.0)
    with pytest.raises(errors.OperandDtypeError, match="`reduce_res` cannot be int32"):
        run(
            nisa.select_reduce,
            dst=Out((2, 4)),
            reduce_res=Out((2, 1), nl.int32),
            predicate=P,
            on_true=X,
            on_false=0.0,
            reduce_cmd=CMD.reset_reduce,
        )


def test_rule_45_ranks_may_differ() -> None:
    dst = run(nisa.select_reduce, dst=Out((2, 2, 2)), predicate=P, on_true=X, on_false=-1.0)
    assert dst.reshape(2, 4).tolist() == [[1, -1, 3, -1], [-1, -1, 7, 8]]


def test_rule_53_one_input_in_psum() -> None:
    arguments = {"dst": Out((2, 4)), "on_false": -1.0}
    run(nisa.select_reduce, predicate=Psum(P), on_true=X, **arguments)
    dst = run(nisa.select_reduce, predicate=P, on_true=Psum(X), **arguments)
    assert dst.tolist() == [[1, -1, 3, -1], [-1, -1, 7, 8]]
    with pytest.raises(errors.MemoryError_, match="cannot both live in psum"):
        run(nisa.select_reduce, predicate=Psum(P), on_true=Psum(X), **arguments)


def test_nothing_of_the_side_not_taken_passes() -> None:
    x = np.array([[np.nan, 1, np.inf, 2]], f32)
    dst = run(
        nisa.select_reduce,
        dst=Out((1, 4)),
        predicate=np.array([[0, 1, 0, 1]], np.int8),
        on_true=x,
        on_false=0.0,
    )
    assert dst.tolist() == [[0, 1, 0, 2]]


def test_in_place() -> None:
    @nki.jit
    def kernel(x, p):
        tile = load(x)
        nisa.select_reduce(dst=tile, predicate=load(p), on_true=tile, on_false=tile[:, 0:1])
        return store(tile)

    assert nki.simulate(kernel)(X, P).tolist() == [[1, 1, 3, 1], [5, 5, 7, 8]]


def test_rule_74_commands_and_operator() -> None:
    arguments = {"dst": Out((2, 4)), "predicate": P, "on_true": X, "on_false": 0.0}
    with pytest.raises(errors.RuleError, match="`reduce_cmd` is a command"):
        run(nisa.select_reduce, reduce_cmd=CMD.load_reduce, **arguments)
    with pytest.raises(errors.OperatorError, match="`reduce_op`"):
        run(nisa.select_reduce, reduce_op=nl.add, **arguments)
    found = diagnose(nisa.select_reduce, reduce_res=Out((2, 1)), **arguments)
    assert len(found) == 1 and "undefined" in found[0].message


def test_cost() -> None:
    x, p = normal((2, 500)), np.ones((2, 500), np.uint8)
    arguments = {"dst": Out(x.shape), "on_false": 0.0}
    assert interval(nisa.select_reduce, "trn2", predicate=p, on_true=x, **arguments) == 1000
    assert interval(nisa.select_reduce, "trn2", predicate=Psum(p), on_true=x, **arguments) == 560
    read = {"reduce_res": Out((2, 1)), "reduce_cmd": CMD.reset_reduce}
    assert interval(nisa.select_reduce, "trn2", predicate=p, on_true=x, **arguments, **read) == 1064
