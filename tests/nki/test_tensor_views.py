"""Chains of view operations against NumPy: the same operations on an array that holds the storage element numbers."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki import dtypes, errors
from nki.enums import MemoryRegion
from nki.ir.program import Access, Buffer
from nki.tensor import NkiTensor


def tensor(shape, memory=MemoryRegion.sbuf, dtype=dtypes.float32):
    """A fresh tensor outside any kernel."""
    return NkiTensor._of(Access.whole(Buffer("t", tuple(shape), dtype, memory, label="t")))


def elements(t):
    """Storage element numbers in view order, by NumPy's own strided view."""
    storage = np.arange(t.access.buffer.nbytes // t.dtype.itemsize)
    strides = tuple(step * storage.itemsize for step in t.strides)
    return np.lib.stride_tricks.as_strided(storage[t.offset :], t.shape, strides)


def fresh_elements(shape):
    return np.arange(prod(shape)).reshape(shape)


def take_subscript(draw, view, array, on_chip):
    """A random subscript; the expected result follows the keep rules of rule 27, stated with slices."""
    key, expected = [], []
    for dim, size in enumerate(array.shape):
        kind = draw(st.sampled_from(("all", "int", "negative", "range", "ds", "step")))
        start = draw(st.integers(0, size - 1))
        stop = draw(st.integers(start + 1, size))
        step = draw(st.integers(1, 3)) if kind == "step" and (dim or not on_chip) else 1
        if kind in ("int", "negative"):
            key.append(start if kind == "int" else start - size)
            expected.append(start)
        elif kind == "ds":
            from nki.views import DynamicSlice

            key.append(DynamicSlice(start, stop - start))
            expected.append(slice(start, stop))
        else:
            key.append(slice(None) if kind == "all" else slice(start, stop, step))
            expected.append(key[-1])
    if on_chip and isinstance(expected[0], int):
        expected[0] = slice(expected[0], expected[0] + 1)
    kept = sum(not isinstance(k, int) for k in expected)
    if kept < (2 if on_chip else 1):
        expected[-1] = slice(expected[-1], expected[-1] + 1)
    while draw(st.booleans()) and key and key[-1] == slice(None):
        key.pop()
    return view[tuple(key) or ...], array[tuple(expected)]


def take_permute(draw, view, array, on_chip):
    first = 1 if on_chip else 0
    order = [*range(first), *draw(st.permutations(range(first, array.ndim)))]
    return view.permute(tuple(order)), array.transpose(order)


def take_expand(draw, view, array, on_chip):
    dim = draw(st.integers(1 if on_chip else 0, array.ndim))
    return view.expand_dim(dim), np.expand_dims(array, dim)


def take_squeeze(draw, view, array, on_chip):
    dims = [d for d in range(1 if on_chip else 0, array.ndim) if array.shape[d] == 1]
    if not dims or array.ndim <= (2 if on_chip else 1):
        return view, array
    dim = draw(st.sampled_from(dims))
    return view.squeeze_dim(dim), array.squeeze(dim)


def take_broadcast(draw, view, array, on_chip):
    dims = [d for d in range(1 if on_chip else 0, array.ndim) if array.shape[d] == 1]
    if not dims:
        return view, array
    dim, size = draw(st.sampled_from(dims)), draw(st.integers(1, 4))
    shape = (*array.shape[:dim], size, *array.shape[dim + 1 :])
    return view.broadcast(dim, size), np.broadcast_to(array, shape)


def take_split(draw, view, array, on_chip):
    dims = [d for d in range(1 if on_chip else 0, array.ndim) if array.shape[d] % 2 == 0]
    if not dims:
        return view, array
    dim = draw(st.sampled_from(dims))
    half = array.shape[dim] // 2
    given_sizes = draw(st.sampled_from(((2, half), (2, -1), (-1, half))))
    shape = (*array.shape[:dim], 2, half, *array.shape[dim + 1 :])
    return view.reshape_dim(dim, given_sizes), array.reshape(shape)


def take_reshape(draw, view, array, on_chip):
    """Reshape, or the error if the elements do not lie in order (NumPy would copy then)."""
    free = prod(array.shape[1:])
    divisors = [n for n in range(1, free + 1) if free % n == 0]
    n = draw(st.sampled_from(divisors))
    shape = (array.shape[0], n, free // n)
    try:
        expected = array.view()
        expected.shape = shape
    except (AttributeError, ValueError):
        with pytest.raises(errors.ShapeError, match="one behind the other"):
            view.reshape(shape)
        return view, array
    return view.reshape(shape), expected


def take_flatten(draw, view, array, on_chip):
    first = draw(st.integers(1 if on_chip else 0, array.ndim - 1))
    last = draw(st.integers(first, array.ndim - 1))
    shape = (*array.shape[:first], prod(array.shape[first : last + 1]), *array.shape[last + 1 :])
    try:
        expected = array.view()
        expected.shape = shape
    except (AttributeError, ValueError):
        with pytest.raises(errors.ShapeError):
            view.flatten_dims(first, last)
        return view, array
    return view.flatten_dims(first, last), expected


TAKE = (
    take_subscript,
    take_permute,
    take_expand,
    take_squeeze,
    take_broadcast,
    take_split,
    take_reshape,
    take_flatten,
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # NumPy >= 2.5: assigning `.shape`
@pytest.mark.parametrize("memory", [MemoryRegion.sbuf, MemoryRegion.shared_hbm])
@given(data=st.data())
def test_chains_of_views(memory, data):
    on_chip = memory.on_chip
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=4)))
    view, array = tensor(shape, memory), fresh_elements(shape)
    for take in data.draw(st.lists(st.sampled_from(TAKE), max_size=6)):
        if array.ndim == 5 and take in (take_expand, take_split):
            continue
        view, array = take(data.draw, view, array, on_chip)
        assert view.shape == array.shape
        np.testing.assert_array_equal(elements(view), array)
        assert view.access.buffer.name == "t" and view.size == array.size and view.ndim == array.ndim
    low, high = view.access.extent()
    assert (low, high) == (array.min(), array.max())


@given(data=st.data())
def test_pattern_of_a_view_makes_the_same_view(data):
    t = tensor((8, 3, 4), MemoryRegion.sbuf)
    view, array = take_subscript(data.draw, t, fresh_elements((8, 3, 4)), True)
    again = view.ap(view.get_pattern())
    np.testing.assert_array_equal(elements(again), array)
    assert again == view


@given(
    old=st.sampled_from((dtypes.float32, dtypes.bfloat16, dtypes.uint8)),
    new=st.sampled_from((dtypes.float32, dtypes.bfloat16, dtypes.uint8)),
    data=st.data(),
)
def test_view_reinterprets_bytes(old, new, data):
    buffer = Buffer("t", (4, 3, 16), old, MemoryRegion.sbuf)
    raw = np.random.default_rng(0).integers(0, 255, buffer.nbytes, np.uint8)
    start = data.draw(st.integers(0, 3)) * 4
    view = NkiTensor._of(Access.whole(buffer))[:, 1:3, start : start + 4]
    expected = raw.view(old.numpy).reshape(4, 3, 16)[:, 1:3, start : start + 4].copy().view(new.numpy)
    seen = view.view(new)
    storage = raw.view(new.numpy)
    strides = tuple(step * new.itemsize for step in seen.strides)
    got = np.lib.stride_tricks.as_strided(storage[seen.offset :], seen.shape, strides)
    assert seen.dtype == new and seen.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def test_rearrange():
    a = fresh_elements((8, 24))
    t = tensor((8, 24))
    r = t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4})
    np.testing.assert_array_equal(elements(r), a.reshape(8, 4, 6).transpose(0, 2, 1))
    h = tensor((8, 24), MemoryRegion.shared_hbm)
    r = h.rearrange((("a", "b"), "c"), ("b", "a", "c"), {"a": 2})
    np.testing.assert_array_equal(elements(r), a.reshape(2, 4, 24).transpose(1, 0, 2))
    back = tensor((8, 4, 6)).rearrange(("p", "h", "w"), ("p", ("h", "w")))
    assert back.shape == (8, 24)
    with pytest.raises(errors.ShapeError, match="partition dimension"):
        t.rearrange((("a", "b"), "c"), ("b", "a", "c"), {"a": 2})
    with pytest.raises(errors.ShapeError, match="same names"):
        t.rearrange(("a", "b"), ("a", "c"))


def test_access_patterns():
    t = tensor((128, 64))
    u = t.slice(dim=1, start=8, end=24)
    assert u.get_pattern() == [[64, 128], [1, 16]] and u.offset == 8
    v = t.ap(pattern=[[64, 128], [1, 16]], offset=8)
    assert v == u
    assert u.ap([[64, 128], [1, 16]]) == u, "offset None inherits (design D8)"
    assert u.ap([(64, 128), (1, 16)], offset=0).offset == 0, "an offset is absolute"
    assert u.ap([[64, 128], [2, 4]]).ap([[64, 128], [1, 2]]) == u.ap([[64, 128], [1, 2]])
    bf = t.ap([[128, 128], [1, 128]], offset=0, dtype=dtypes.bfloat16)
    assert bf.shape == (128, 128) and bf.dtype == "bfloat16"
    column = tensor((128, 1))
    thrown_away = column.ap([[1, 128], [0, 512]])
    assert thrown_away.shape == (128, 512) and thrown_away.strides == (1, 0)
    assert t.ap([[0, 1], [1, 64]], offset=64 * 5).access.start_partition == 5


def test_contiguity_ignores_partitions_and_sizes_of_one():
    t = tensor((128, 4, 16))
    assert t.is_contiguous() and t[0:64].is_contiguous() and t[:, 1:2, :].is_contiguous()
    assert not t[:, :, 0:8].is_contiguous() and not t.permute((0, 2, 1)).is_contiguous()
    assert t[:, 0:1].broadcast(1, 3).is_contiguous() is False
    assert not tensor((4, 8), MemoryRegion.shared_hbm)[::2].is_contiguous()
    assert not t.is_indirect()
