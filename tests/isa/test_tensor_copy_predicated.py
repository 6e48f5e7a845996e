"""`nisa.tensor_copy_predicated` against NumPy's where."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run
from tests.isa.tiles import load, store

X = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], f32)
P = np.array([[1, 0, 2, 0], [0, 0, 255, 1]], np.uint8)


def copied(dst: np.ndarray, src: object, predicate: object, **more: object) -> np.ndarray:
    """What `dst` holds afterwards."""

    @nki.jit
    def kernel(dst, arrays):
        tile, loaded = load(dst), [load(array) for array in arrays]
        value = loaded[1] if len(loaded) > 1 else src
        nisa.tensor_copy_predicated(dst=tile, src=value, predicate=loaded[0], **more)
        return store(tile)

    arrays = (predicate, src) if isinstance(src, np.ndarray) else (predicate,)
    return nki.simulate(kernel)(dst, arrays)


def test_worked_example() -> None:
    assert copied(-X, X, P).tolist() == [[1, -2, 3, -4], [-5, -6, 7, 8]]


def test_rule_179_reverse_is_logical_negation() -> None:
    assert copied(-X, X, P, reverse_pred=True).tolist() == [[-1, 2, -3, 4], [5, 6, -7, -8]]


def test_published_example() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((128, 512), f32) * 100, rng.random((128, 512), f32) * 100
    p = a <= 0.8 * 100
    assert np.array_equal(copied(b, a, p), np.where(p, a, b))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.bool_])
def test_rule_179_predicate_dtypes(dtype: type) -> None:
    assert copied(-X, X, P.astype(dtype)).tolist() == [[1, -2, 3, -4], [-5, -6, 7, 8]]


def test_rule_179_other_predicates_are_refused() -> None:
    for dtype in (np.int8, np.int32, f32):
        with pytest.raises(errors.OperandDtypeError, match="`predicate` cannot be"):
            copied(-X, X, P.astype(dtype))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, bf16, ml_dtypes.float8_e4m3, np.int8])
def test_rule_18_bits_are_copied(dtype: type) -> None:
    """One dtype on both sides: NaN payloads and integers beyond 2^24 survive."""
    rng = np.random.default_rng(1)
    size = np.dtype(dtype).itemsize
    a, b = (rng.integers(0, 256, (3, 5 * size), np.uint8).view(dtype) for _ in range(2))
    p = rng.integers(0, 2, (3, 5)).astype(np.uint16)
    found = copied(b, a, p).view(f"u{size}")
    assert np.array_equal(found, np.where(p, a.view(f"u{size}"), b.view(f"u{size}")))


def test_rule_18_dtypes_agree() -> None:
    with pytest.raises(errors.OperandDtypeError, match="`src` is bfloat16, but `dst` is float32"):
        copied(X, X.astype(bf16), P)


def test_numbers() -> None:
    assert copied(X, 9, P).tolist() == [[9, 2, 9, 4], [5, 6, 9, 9]]
    assert copied(X.astype(bf16), 257.0, P).astype(f32).tolist() == [[256, 2, 256, 4], [5, 6, 256, 256]]
    big = (1 << 31) - 1
    assert copied(X.astype(np.int32), big, P).tolist() == [[big, 2, big, 4], [5, 6, big, big]]
    assert copied(X.astype(np.int32), 2.5, P).tolist() == [[2, 2, 2, 4], [5, 6, 2, 2]]
    assert copied(X, float("-inf"), P)[0].tolist() == [-np.inf, 2, -np.inf, 4]


def test_rule_45_ranks_may_differ() -> None:
    assert (
        copied(-X.reshape(2, 2, 2), X, P.reshape(2, 4, 1)).reshape(2, 4).tolist() == copied(-X, X, P).tolist()
    )
    with pytest.raises(errors.OperandShapeError, match="dimension F"):
        copied(X, X, P[:, :3].copy())


def test_source_and_predicate_may_overlap_dst() -> None:
    @nki.jit
    def kernel(x, p):
        tile = load(x)
        nisa.tensor_copy_predicated(dst=tile[:, 1:4], src=tile[:, 0:3], predicate=load(p)[:, 0:3])
        return store(tile)

    assert nki.simulate(kernel)(X, P).tolist() == [[1, 1, 3, 3], [5, 6, 7, 7]]


def test_rule_47_what_is_kept_must_have_been_written() -> None:
    @nki.jit
    def kernel(x, p):
        tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.tensor_copy_predicated(dst=tile, src=load(x), predicate=load(p))
        return store(tile)

    with pytest.raises(errors.UninitializedReadError):
        nki.simulate(kernel)(X, P)


def test_rule_53_one_input_in_psum() -> None:
    arguments = {"dst": Out((2, 4), psum=True, fill=0)}
    assert run(nisa.tensor_copy_predicated, src=Psum(X), predicate=P, **arguments).tolist() == [
        [1, 0, 3, 0],
        [0, 0, 7, 8],
    ]
    run(nisa.tensor_copy_predicated, src=X, predicate=Psum(P), **arguments)
    with pytest.raises(errors.MemoryError_, match="cannot both live in psum"):
        run(nisa.tensor_copy_predicated, src=Psum(X), predicate=Psum(P), **arguments)


def test_cost() -> None:
    x, p = normal((2, 500)), np.ones((2, 500), np.uint8)
    dst = Out(x.shape, fill=0)
    assert interval(nisa.tensor_copy_predicated, "trn2", dst=dst, src=x, predicate=p) == 1000
    assert interval(nisa.tensor_copy_predicated, "trn2", dst=dst, src=Psum(x), predicate=p) == 560
    assert interval(nisa.tensor_copy_predicated, "trn2", dst=dst, src=1.0, predicate=p) == 500
