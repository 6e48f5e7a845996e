"""`nisa.exponential` against math.exp, and a softmax of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, diagnose, f32, interval, normal, run
from tests.isa.tiles import load, sbuf, store

CMD = nisa.reduce_cmd


def close(found: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(found, f32), expected, rtol=1e-6)


def test_worked_example() -> None:
    x = np.array([[0, 1, -1, 2]], f32)
    close(run(nisa.exponential, dst=Out((1, 4)), src=x), [[math.exp(v) for v in (0, 1, -1, 2)]])
    close(
        run(nisa.exponential, dst=Out((1, 4)), src=x, max_value=2.0), [[math.exp(v) for v in (-2, -1, -3, 0)]]
    )


def test_a_column_as_maximum_and_the_sum() -> None:
    x = normal((4, 9)) * 4
    most = x.max(axis=1, keepdims=True)
    dst, total = run(
        nisa.exponential,
        dst=Out(x.shape),
        reduce_res=Out((4, 1)),
        src=x,
        max_value=most,
        reduce_cmd=CMD.reset_reduce,
    )
    golden = [[math.exp(v - float(m)) for v in row] for row, m in zip(x.tolist(), most[:, 0])]
    np.testing.assert_allclose(dst, golden, rtol=1e-5)
    np.testing.assert_allclose(total[:, 0], [sum(row) for row in golden], rtol=1e-5)


def test_rules_74_75_online_softmax_denominator() -> None:
    """reset_reduce, reduce without read-out, reduce with it; then load_reduce from a column."""

    @nki.jit
    def kernel(x):
        tile, out, a, b = load(x), sbuf((2, 4)), sbuf((2, 1)), sbuf((2, 1))
        nisa.exponential(out, tile[:, 0:4], reduce_cmd=CMD.reset_reduce)
        nisa.exponential(out, tile[:, 4:8], reduce_cmd=CMD.reduce)
        nisa.exponential(out, tile[:, 8:12], reduce_cmd=CMD.reduce, reduce_res=a)
        nisa.exponential(out, tile[:, 0:4], reduce_cmd=CMD.load_reduce, reduce_res=b, reduce_init=a)
        return store(a), store(b)

    x = normal((2, 12))
    a, b = nki.simulate(kernel, target="trn3")(x)
    wide = np.exp(x.astype(np.float64))
    close(a[:, 0], wide.sum(axis=1))
    close(b[:, 0], wide.sum(axis=1) + wide[:, :4].sum(axis=1))


def test_rule_177_the_sum_is_of_float32() -> None:
    x = normal((1, 64))
    dst, total = run(
        nisa.exponential,
        dst=Out(x.shape, nl.bfloat16),
        reduce_res=Out((1, 1)),
        src=x,
        reduce_cmd=CMD.reset_reduce,
    )
    exact = np.exp(x.astype(np.float64)).sum()
    close(total, [[exact]])
    assert dst.dtype == bf16 and abs(dst.astype(np.float64).sum() - exact) > 1e-5


def test_infinities() -> None:
    x = np.array([[-np.inf, 0, np.inf]], f32)
    assert run(nisa.exponential, dst=Out((1, 3)), src=x).tolist() == [[0, 1, np.inf]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32, np.float16, bf16])
def test_dtypes(dtype: type) -> None:
    x = np.array([[0, 1, 2]], dtype)
    close(run(nisa.exponential, dst=Out((1, 3)), src=x), [[1, math.e, math.e**2]])
    assert run(nisa.exponential, dst=Out((1, 3), nl.uint8), src=x).tolist() == [[1, 3, 7]]


def test_undocumented_dtypes_are_refused() -> None:
    x = np.ones((1, 3), f32)
    with pytest.raises(errors.OperandDtypeError, match="`dst` cannot be uint32"):
        run(nisa.exponential, dst=Out((1, 3), nl.uint32), src=x)
    with pytest.raises(errors.OperandDtypeError, match="`max_value` cannot be bfloat16"):
        run(nisa.exponential, dst=Out((1, 3)), src=x, max_value=np.ones((1, 1), bf16))
    with pytest.raises(errors.OperandDtypeError, match="`reduce_res` cannot be int32"):
        run(
            nisa.exponential,
            dst=Out((1, 3)),
            src=x,
            reduce_res=Out((1, 1), nl.int32),
            reduce_cmd=CMD.reset_reduce,
        )


def test_dimensions() -> None:
    x = np.zeros((1, 2, 2, 2), f32)
    assert run(nisa.exponential, dst=Out((1, 8)), src=x).tolist() == [[1] * 8]
    with pytest.raises(errors.OperandShapeError, match="`src` has 5 dimensions"):
        run(nisa.exponential, dst=Out((1, 16)), src=np.zeros((1, 2, 2, 2, 2), f32))


def test_rule_74_commands() -> None:
    x = np.zeros((1, 2), f32)
    arguments = {"dst": Out((1, 2)), "src": x}
    with pytest.raises(errors.RuleError, match="`reduce_cmd` is a command"):
        run(nisa.exponential, reduce_cmd=CMD.reset, **arguments)
    with pytest.raises(errors.RuleError, match="`reduce_init` is 0"):
        run(nisa.exponential, reduce_init=1.0, **arguments)
    found = diagnose(nisa.exponential, reduce_res=Out((1, 1)), **arguments)
    assert len(found) == 1 and "undefined" in found[0].message


def test_trn3_only() -> None:
    for target in ("trn1", "trn2"):
        with pytest.raises(errors.TargetError, match="trn3 and later"):
            run(nisa.exponential, target=target, dst=Out((1, 2)), src=np.zeros((1, 2), f32))


def test_in_place_psum_and_cost() -> None:
    @nki.jit
    def kernel(x):
        tile = load(x)
        nisa.exponential(tile, tile, max_value=1.0)
        return store(tile)

    assert nki.simulate(kernel, target="trn3")(np.ones((1, 4), f32)).tolist() == [[1] * 4]
    x = np.zeros((2, 1000), f32)
    assert (run(nisa.exponential, dst=Out(x.shape, psum=True), src=Psum(x)) == 1).all()
    assert interval(nisa.exponential, "trn3", dst=Out(x.shape), src=x) == 250
    read = {"reduce_res": Out((2, 1)), "reduce_cmd": CMD.reset_reduce}
    assert interval(nisa.exponential, "trn3", dst=Out(x.shape), src=x, **read) == 250 + 64
