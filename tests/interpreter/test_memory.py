"""Blocks and images: what shares bytes, what is recycled, where windows lie."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter.memory import Blocks, Image, aligned_bytes, byte_layout, overlapping_groups, poison, view
from nki import dtypes
from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.ir.program import Access, Buffer

SBUF, PSUM, HBM = MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.private_hbm


def tile(
    name: str,
    shape: tuple[int, ...] = (4, 8),
    dtype: DType = dtypes.float32,
    memory: MemoryRegion = SBUF,
    address: tuple[int, int] | None = None,
) -> Buffer:
    return Buffer(name, shape, dtype, memory, address=address)


def test_memory_starts_at_a_cache_line() -> None:
    for size in (1, 63, 64, 1000):
        assert aligned_bytes(size).ctypes.data % 64 == 0
        assert aligned_bytes(size).nbytes == size


def test_blocks_are_recycled_by_size_most_recent_first() -> None:
    blocks = Blocks()
    a, b, c, d = (tile(name) for name in "abcd")
    first, second = blocks.own(a).base, blocks.own(b).base
    assert not np.shares_memory(first, second)
    blocks.release(a)
    blocks.release(b)
    assert blocks.own(tile("small", (4, 4))).base is not second
    assert blocks.own(c).base is second
    assert blocks.own(d).base is first
    assert c in blocks and tile("e") not in blocks


def test_views_are_windows_and_no_copies() -> None:
    blocks = Blocks()
    buffer = tile("a")
    storage = blocks.own(buffer)
    whole = view(storage, Access.whole(buffer))
    whole[...] = np.arange(32).reshape(4, 8)
    part = view(storage, Access(buffer, dtypes.float32, 17, (2, 3), (8, 2)))
    assert part.tolist() == [[17, 19, 21], [25, 27, 29]]
    part[...] = 0
    assert whole[2, 1] == 0
    narrow = view(storage, Access(buffer, dtypes.uint8, 32, (1, 4), (32, 1)))
    assert narrow.tobytes() == whole[1, :1].tobytes()


def test_tiles_laid_over_each_other_share_one_block() -> None:
    a = tile("a", address=(0, 64))
    b = tile("b", (2, 16), dtypes.bfloat16, address=(3, 80))
    blocks = Blocks()
    blocks.shared([a, b])
    assert blocks[a].base is blocks[b].base
    view(blocks[a], Access.whole(a))[...] = 0
    view(blocks[b], Access.whole(b))[...] = 1
    row = view(blocks[a], Access.whole(a))
    assert not row[:3].any() and not row[3, :4].any() and row[3, 4:].all()


def test_images_place_by_address_and_poison_what_is_new() -> None:
    image = Image(8, 128)
    blocks = Blocks()
    a, b = tile("a", dtype=dtypes.int32, address=(0, 64)), tile("b", address=(2, 80))
    for buffer in (a, b):
        blocks.place(buffer, image)
        image.claim(buffer)
    first, second = (view(blocks[buffer], Access.whole(buffer)) for buffer in (a, b))
    assert (first == 4).all()
    assert (second[:2, :4].view(np.int32) == 4).all()
    assert np.isnan(second[2:]).all() and np.isnan(second[:2, 4:]).all()
    second[...] = 0
    assert not first[2:, 4:].any() and first[:2].all()
    assert blocks[a].base is blocks[b].base


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_poison(dtype: DType) -> None:  # semantics rule 47
    array = np.zeros((2, 3), dtype.numpy)
    poison(array)
    if dtype.is_float:
        wide = array.astype(np.float32)
        assert np.isnan(wide).all() or not (wide == 0).any()
    elif dtype.is_integer:
        assert (array == 4).all()
    else:
        assert array.tobytes() != bytes(array.nbytes)


@given(st.integers(0, 1 << 32))
def test_byte_layout_of_windows(seed: int) -> None:
    rng = random.Random(seed)
    buffer = tile("a", (5, 3, 4), rng.choice((dtypes.float32, dtypes.bfloat16)), address=(0, 0))
    size = buffer.dtype.itemsize
    row, i, j = rng.randrange(5), rng.randrange(3), rng.randrange(4)
    shape = (rng.randint(1, 5 - row), rng.randint(1, 3 - i), rng.randint(1, 4 - j))
    access = Access(buffer, buffer.dtype, row * 12 + i * 4 + j, shape, (12, 4, 1))
    for pitch in (buffer.partition_bytes, buffer.partition_bytes + 20):
        offset, strides = byte_layout(access, pitch)
        for index in np.ndindex(*shape):
            expected = (row + index[0]) * pitch + ((i + index[1]) * 4 + j + index[2]) * size
            assert offset + sum(n * stride for n, stride in zip(index, strides)) == expected


def test_rows_of_hbm_have_no_pitch() -> None:
    buffer = tile("a", memory=HBM)
    access = Access(buffer, dtypes.float32, 3, (16, 2), (2, 1))
    assert byte_layout(access, buffer.partition_bytes) == (12, (8, 4))


@given(st.integers(0, 1 << 32))
def test_groups_are_the_connected_tiles(seed: int) -> None:
    rng = random.Random(seed)
    buffers = [
        tile(
            f"t{i}",
            (rng.randint(1, 4), rng.randint(1, 8)),
            dtypes.uint8,
            rng.choice((SBUF, PSUM)),
            (rng.randrange(8), rng.randrange(24)),
        )
        for i in range(rng.randint(0, 14))
    ]
    cells = {
        b.name: {
            (b.memory, b.address[0] + r, b.address[1] + c)
            for r in range(b.shape[0])
            for c in range(b.shape[1])
            if b.address
        }
        for b in buffers
    }
    expected: list[set[str]] = [{b.name} for b in buffers]
    for one in buffers:
        for other in buffers:
            if cells[one.name] & cells[other.name]:
                a = next(g for g in expected if one.name in g)
                b = next(g for g in expected if other.name in g)
                if a is not b:
                    a |= b
                    expected.remove(b)
    found = [{b.name for b in group} for group in overlapping_groups([*buffers, tile("free")])]
    assert sorted(map(sorted, found)) == sorted(sorted(g) for g in expected if len(g) > 1)


def test_many_tiles_side_by_side_are_grouped_fast() -> None:
    buffers = [tile(f"t{i}", (4, 4), dtypes.uint8, address=(0, 4 * i)) for i in range(20_000)]
    assert overlapping_groups(buffers) == []
