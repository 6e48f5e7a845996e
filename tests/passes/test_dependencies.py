"""Which instructions wait for which: on windows, on reused addresses, in HBM, on registers; that time stays linear."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki import dtypes
from nki.enums import engine as Engine
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Buffer
from nki.passes.dependencies import dependencies
from nki.passes.windows import apart, rectangle
from tests.interpreter.timed import (
    bank,
    edges,
    hbm,
    move,
    program,
    tile,
    timed_state,
    timed_sum,
    window,
    work,
)

V, S, G, T = Engine.vector, Engine.scalar, Engine.gpsimd, Engine.tensor


def test_read_after_write_and_back() -> None:
    x, y = tile("x"), tile("y")
    assert edges(work(V, x), work(S, y, x), work(V, x), work(G, x)) == [
        [],
        [(0, "RAW")],
        [(1, "WAR"), (0, "WAW")],
        [(2, "WAW")],
    ]


def test_operand_is_named() -> None:
    x, y, z = tile("x"), tile("y"), tile("z")
    made = program(work(V, x), work(V, y), work(S, z, y, x))
    assert [(d.on, d.operand) for d in dependencies(made)[0][2]] == [(1, "a"), (0, "b")]


def test_disjoint_windows_do_not_wait() -> None:
    x, y = tile("x"), tile("y")
    left, right = window(x, (0, 128), (0, 4)), window(x, (0, 128), (4, 8))
    top, bottom = window(x, (0, 64)), window(x, (64, 128))
    assert edges(work(V, left), work(S, right)) == [[], []]
    assert edges(work(V, top), work(S, bottom)) == [[], []]
    assert edges(work(V, left), work(S, right), work(G, y, x)) == [[], [], [(0, "RAW"), (1, "RAW")]]


def test_interleaved_columns_do_not_wait() -> None:
    x = tile("x")
    even, odd = window(x, (0, 128), (0, 8, 2)), window(x, (0, 128), (1, 8, 2))
    assert edges(work(V, even), work(S, odd)) == [[], []]
    assert edges(work(V, even), work(S, window(x, (0, 128), (2, 3))))[1] == [(0, "WAW")]


def test_a_covering_write_hides_what_was_before() -> None:
    x, y = tile("x"), tile("y")
    parts = [work(V, window(x, (0, 128), (i, i + 1))) for i in range(8)]
    assert edges(*parts, work(V, x), work(S, y, x))[-1] == [(8, "RAW")]


def test_a_write_of_every_second_row_hides_nothing() -> None:
    x, y = tile("x"), tile("y")
    rows = window(x, (0, 128, 2))
    assert edges(work(V, x), work(S, rows), work(G, y, x))[-1] == [(0, "RAW"), (1, "RAW")]


def test_update_in_place_waits_once() -> None:
    x = tile("x")
    assert edges(work(V, x), work(S, x, x), work(V, x, x)) == [[], [(0, "RAW")], [(1, "RAW")]]


def test_sums_accumulate() -> None:
    acc, x, y = bank("acc", 0), tile("x"), tile("y")
    assert edges(
        work(T, acc, x, cls=timed_sum),
        work(T, acc, x, cls=timed_sum),
        work(V, y, acc),
        work(T, acc, x, cls=timed_sum),
    ) == [[], [(0, "ACCUMULATE")], [(1, "RAW")], [(1, "ACCUMULATE"), (2, "WAR")]]


def test_a_freed_address_waits_for_the_tile_that_was_there() -> None:
    old, new, out = tile("old", at=(0, 0)), tile("new", (128, 4), at=(0, 16)), tile("out", at=(0, 4096))
    found = edges(work(V, old), work(S, out, old), work(G, new), work(V, out, new))
    assert found[2] == [(1, "REUSE"), (0, "REUSE")]
    assert found[3] == [(2, "RAW"), (1, "WAW")]


def test_tiles_side_by_side_do_not_wait() -> None:
    assert edges(work(V, tile("x", at=(0, 0))), work(S, tile("y", at=(0, 32)))) == [[], []]
    assert edges(work(V, tile("x", (64, 8), at=(0, 0))), work(S, tile("y", (64, 8), at=(64, 0)))) == [[], []]
    assert edges(work(V, tile("x", at=(0, 0))), work(S, bank("y", 0))) == [[], []]


def test_tiles_that_the_user_laid_over_each_other_see_each_other() -> None:
    one, other = tile("one", at=(0, 0), placed=True), tile("other", (128, 4), at=(0, 16), placed=True)
    out = tile("out", at=(0, 4096))
    assert edges(work(V, one), work(S, out, other), work(G, one)) == [
        [],
        [(0, "RAW")],
        [(0, "WAW"), (1, "WAR")],
    ]


def test_tensors_that_nobody_writes_order_nothing() -> None:
    x = hbm("x", (256, 8), role="argument")
    assert edges(move(tile("a"), window(x, (0, 128))), move(tile("b"), window(x, (0, 128)))) == [[], []]


def test_windows_of_one_output() -> None:
    out, t = hbm("out", (256, 16)), tile("t")
    blocks = [window(out, (r, r + 128), (c, c + 8)) for r in (0, 128) for c in (0, 8)]
    found = edges(
        work(V, t), *(move(block, t) for block in blocks), move(tile("u", (128, 16)), window(out, (0, 128)))
    )
    assert found[1:5] == [[(0, "RAW")]] * 4
    assert found[5] == [(1, "RAW"), (2, "RAW")]


def test_registers_and_orders_of_the_user() -> None:
    first, second = work(S, tile("x"), cls=timed_state), work(S, tile("y"), cls=timed_state)
    third = work(V, tile("z"))
    third.after = (first,)
    assert edges(first, second, third) == [[], [(0, "STATE")], [(0, "ORDER")]]


def _elements(access: Access) -> set[tuple[int, int]]:
    """(row of the buffer, byte in the row) of everything a window touches."""
    index = np.indices(access.shape).reshape(len(access.shape), -1)
    item = access.dtype.itemsize
    starts = (access.offset + np.array(access.strides) @ index) * item
    pitch = access.buffer.partition_bytes
    return {
        ((start + byte) // pitch, (start + byte) % pitch) for start in starts.tolist() for byte in range(item)
    }


@st.composite
def windows(draw: Any, buffer: Buffer) -> Access:
    """Any window of a buffer with steps and, at times, another data type."""
    whole = Access.whole(buffer)
    offset, shape, strides = 0, [], []
    for size, stride in zip(whole.shape, whole.strides):
        step = draw(st.integers(1, 3))
        count = draw(st.integers(1, -(-size // step)))
        start = draw(st.integers(0, size - 1 - (count - 1) * step))
        offset += start * stride
        shape.append(count)
        strides.append(stride * step)
    if draw(st.booleans()) and strides[-1] == 1:
        half = [2 * stride for stride in strides[:-1]] + [1]
        return Access(buffer, dtypes.bfloat16, 2 * offset, (*shape[:-1], 2 * shape[-1]), tuple(half))
    return Access(buffer, buffer.dtype, offset, tuple(shape), tuple(strides))


@given(st.data())
def test_rectangles_never_miss_an_overlap(data: Any) -> None:
    buffer = Buffer("b", (4, 3, 6), dtypes.float32, tile("x").memory)
    one, other = data.draw(windows(buffer)), data.draw(windows(buffer))
    a, b = rectangle(one, buffer.partition_bytes), rectangle(other, buffer.partition_bytes)
    cells = _elements(one)
    assert all(a.first <= row < a.last and a.low <= byte < a.high for row, byte in cells)
    if a.covers and a.lattice is None:
        assert len(cells) == (a.last - a.first) * (a.high - a.low)
    if cells & _elements(other):
        assert a.first < b.last and b.first < a.last and a.low < b.high and b.low < a.high
        assert not apart(a.lattice, b.lattice)


@given(st.data())
def test_every_conflict_is_ordered(data: Any) -> None:
    """Two instructions that touch a common byte, one of them writing, are ordered by a chain of dependencies."""
    memory = data.draw(st.sampled_from(["tile", "hbm"]))
    shape = (4, 3, 6)
    x, y = (
        (tile("x", shape, (0, 0)), tile("y", shape, (0, 128)))
        if memory == "tile"
        else (hbm("x", shape), hbm("y", shape))
    )
    made: list[Instruction] = []
    for _ in range(data.draw(st.integers(2, 7))):
        dst, src = data.draw(st.permutations([x, y]))
        made.append(
            work(data.draw(st.sampled_from([V, S])), data.draw(windows(dst)), data.draw(windows(src)))
        )
    found = dependencies(program(*made))[0]
    before: list[set[int]] = []
    for index, of_one in enumerate(found):
        # The reads of one queue are told by their last one: a queue works in order.
        same = {i for i in range(index) if made[i].engine is made[index].engine}
        on = {d.on for d in of_one}
        on |= {i for d in of_one for i in range(d.on) if made[i].engine is made[d.on].engine} | same
        before.append(on.union(*(before[i] for i in on)) if on else set())
    for later, instruction in enumerate(made):
        for earlier in range(later):
            if _conflict(made[earlier], instruction):
                assert earlier in before[later], (earlier, later)


def _conflict(one: Instruction, other: Instruction) -> bool:
    return any(
        a.buffer is b.buffer and _elements(a) & _elements(b)
        for a, b in [
            *((w, r) for w in one.writes() for r in other.reads()),
            *((r, w) for r in one.reads() for w in other.writes()),
            *((v, w) for v in one.writes() for w in other.writes()),
        ]
    )


def _stores(count: int, columns: int) -> list[Instruction]:
    out, t = hbm("out", (128 * -(-count // columns), 8 * columns)), tile("t")
    blocks = [(128 * (i // columns), 8 * (i % columns)) for i in range(count)]
    return [move(window(out, (r, r + 128), (c, c + 8)), t) for r, c in blocks]


def _columns(count: int) -> list[Instruction]:
    x = tile("x", (128, count))
    return [work(V, window(x, (0, 128), (i, i + 1))) for i in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stores", "blocks", "columns", "chain"])
def test_linear(kind: str) -> None:
    def build(count: int) -> list[Instruction]:
        if kind == "chain":
            tiles = [tile(f"t{i}", at=(0, 32 * i)) for i in range(64)]
            return [work(V, tiles[i % 64], tiles[(i + 7) % 64]) for i in range(count)]
        return _columns(count) if kind == "columns" else _stores(count, 1 if kind == "stores" else 16)

    def per_instruction(count: int) -> float:
        made = program(*build(count))
        times = []
        for _ in range(3):
            begin = time.process_time()
            dependencies(made)
            times.append(time.process_time() - begin)
        return min(times) / count

    assert per_instruction(8_000) < 2.5 * per_instruction(1_000)
