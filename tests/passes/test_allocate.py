"""Addresses of automatic tiles: disjoint while live, in rotation, beside what the user placed, or a clear error."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.enums import MemoryRegion
from nki.ir.program import Program
from nki.passes.liveness import live_ranges
from nki.target import get_target

TRN2 = get_target("trn2")
BANK = TRN2.psum_bank_bytes
ROOM = TRN2.sbuf_fmax_bytes
X = np.zeros((1, 1), np.float32)


def program(function: Any) -> Program:
    """The program of a kernel of one small array."""
    return nki.jit(function).ir(X, target="trn2")


def tile(nbytes: int, **where: Any) -> Any:
    """A written tile of so many bytes a partition."""
    made = nl.ndarray((4, nbytes // 4), dtype=nl.float32, **where)
    nisa.memset(dst=made, value=0.0)
    return made


def touch(made: Any) -> None:
    nisa.tensor_copy(dst=made[:, 0:1], src=made[:, 0:1])


def addresses(found: Program) -> list[int]:
    """Byte offsets of the tiles, in order of creation."""
    return [b.address[1] for b in found.buffers if b.memory.on_chip and b.address is not None]


def check_disjoint(found: Program) -> None:
    ranges = [live for core in found.cores for live in live_ranges(core)]
    for index, one in enumerate(ranges):
        buffer = one.buffer
        assert buffer.address is not None
        if not buffer.placed:
            assert buffer.address[0] == 0
        room = ROOM if buffer.memory is MemoryRegion.sbuf else TRN2.psum_partition_bytes
        assert buffer.address[1] + buffer.partition_bytes <= room
        for other in ranges[:index]:
            same = other.buffer.memory is buffer.memory and one.overlaps(other)
            if same and not (buffer.placed and other.buffer.placed):
                low, high = buffer.address[1], buffer.address[1] + buffer.partition_bytes
                start, end = other.buffer.address[1], other.buffer.address[1] + other.buffer.partition_bytes
                assert high <= start or end <= low, f"{one} and {other}"


@given(st.integers(0, 1 << 32))
def test_live_tiles_are_disjoint(seed: int) -> None:
    rng = random.Random(seed)
    psum = rng.random() < 0.4
    room = TRN2.psum_partition_bytes if psum else ROOM
    steps = []
    for _ in range(rng.randint(5, 30)):
        # Up to six tiles are live at once and a seventh is placed: they fit in any order, with gaps or without.
        size = rng.choice((4, 12, BANK // 2, BANK)) if psum else 4 * rng.randint(1, room // 64)
        at = BANK * rng.randrange(8) if psum else 4 * rng.randrange((room - size) // 4)
        steps.append((size, rng.randint(0, 5), (rng.randrange(4), at) if rng.random() < 0.1 else None))

    def kernel(x):
        live: list[Any] = []
        for size, dying, address in steps:
            live.append(tile(size, buffer=nl.psum if psum else nl.sbuf, address=address))
            if len(live) > 6 or dying == 0:
                touch(live.pop(dying % len(live)))
        for made in live:
            touch(made)
        return x

    try:
        found = program(kernel)
    except errors.FragmentationError:
        assert any(address for _, _, address in steps)
        return
    check_disjoint(found)


def test_freed_addresses_are_used_in_rotation() -> None:
    def kernel(x):
        for _ in range(7):
            tile(ROOM // 4)
        return x

    quarter = ROOM // 4
    assert addresses(program(kernel)) == [0, quarter, 2 * quarter, 3 * quarter, 0, quarter, 2 * quarter]


def test_rotation_passes_over_live_tiles() -> None:
    def kernel(x):
        long = tile(ROOM // 4)
        for _ in range(4):
            tile(ROOM // 4)
        touch(long)
        return x

    quarter = ROOM // 4
    assert addresses(program(kernel)) == [0, quarter, 2 * quarter, 3 * quarter, quarter]


def test_best_fit_where_rotation_fails() -> None:
    def kernel(x):
        first = tile(ROOM // 2)
        small = tile(ROOM // 8)
        touch(first)
        other = tile(ROOM // 8)  # in rotation it would lie behind `small` and leave no half free
        half = tile(ROOM // 2)
        for made in (small, other, half):
            touch(made)
        return x

    found = program(kernel)
    check_disjoint(found)
    assert max(addresses(found)) < ROOM


def test_tiles_that_nothing_touches_need_no_room() -> None:
    def kernel(x):
        for _ in range(10):
            nl.ndarray((4, ROOM // 8), dtype=nl.float32, buffer=nl.sbuf)
        return x

    assert addresses(program(kernel)) == []


def test_odd_sizes_start_aligned() -> None:
    def kernel(x):
        for size in (1, 3, 5):
            made = nl.ndarray((4, size), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.memset(dst=made, value=0)
        return x

    assert all(address % TRN2.sbuf_min_align == 0 for address in addresses(program(kernel)))


def test_psum_tiles_start_at_banks_and_share_only_at_need() -> None:
    def kernel(x, count=10):
        tiles = [tile(BANK // 4, buffer=nl.psum) for _ in range(count)]
        for made in tiles:
            touch(made)
        return x

    found = addresses(program(kernel))
    assert found[:8] == [bank * BANK for bank in range(8)]
    assert len(set(found)) == 10
    assert all(address // BANK == (address + BANK // 4 - 1) // BANK for address in found)


def test_a_psum_tile_may_take_several_banks() -> None:
    def kernel(x):
        wide = tile(3 * BANK, buffer=nl.psum)
        small = tile(4, buffer=nl.psum)
        touch(wide)
        touch(small)
        return x

    assert addresses(program(kernel)) == [0, 3 * BANK]


def test_automatic_tiles_keep_out_of_placed_ones() -> None:
    def kernel(x):
        fixed = tile(ROOM // 2, address=(64, 1024))
        automatic = [tile(1024), tile(2048)]
        for made in (fixed, *automatic):
            touch(made)
        return x

    found = program(kernel)
    check_disjoint(found)
    assert addresses(found) == [1024, 0, 1024 + ROOM // 2]


def test_a_dead_placed_tile_is_no_obstacle() -> None:
    def kernel(x):
        touch(tile(ROOM, address=(0, 0)))
        touch(tile(ROOM))
        return x

    assert addresses(program(kernel)) == [0, 0]


def error_of(function: Any) -> errors.CapacityError:
    with pytest.raises(errors.CapacityError) as info:
        program(function)
    return info.value


def test_capacity_lists_what_is_live() -> None:
    def kernel(x):
        weights = tile(ROOM // 2, name="weights")
        dead = tile(ROOM // 4, name="dead")
        touch(dead)
        for _ in range(3):
            tile(ROOM // 8, name="scratch")
        activations = tile(ROOM // 2 + 4, name="activations")
        for made in (weights, activations):
            touch(made)
        return x

    text = str(error_of(kernel))
    assert type(error_of(kernel)) is errors.CapacityError
    assert "`activations`" in text and "live:    `weights`" in text
    assert "dead" not in text and "scratch" not in text
    assert f"{ROOM} bytes a partition on trn2" in text


def test_many_live_tiles_are_summed_up() -> None:
    def kernel(x):
        tiles = [tile(1024, name=f"t{i}") for i in range(30)]
        big = tile(ROOM - 10 * 1024, name="big")
        for made in (*tiles, big):
            touch(made)
        return x

    lines = str(error_of(kernel)).splitlines()
    listed = [line for line in lines if line.startswith("  live:")]
    assert len(listed) == 13
    assert listed[-1].endswith("18 more places: 18432 bytes a partition")


def test_fragmentation_says_so() -> None:
    def kernel(x):
        wall = tile(1024, address=(0, ROOM // 2))
        big = tile(ROOM // 2 + 1024, name="big")
        touch(wall)
        touch(big)
        return x

    error = error_of(kernel)
    assert isinstance(error, errors.FragmentationError)
    assert "no gap large enough" in str(error)
    assert "address=" in str(error.remedy)


def test_a_place_outside_the_memory_is_refused() -> None:
    def kernel(x):
        return tile(1024, address=(0, TRN2.sbuf_partition_bytes - 512))

    assert "bytes 0.." in str(error_of(kernel))


def test_psum_is_full_after_eight_banks() -> None:
    def kernel(x):
        tiles = [tile(BANK, buffer=nl.psum) for _ in range(9)]
        for made in tiles:
            touch(made)
        return x

    assert "8 times" in str(error_of(kernel))


def test_a_recorded_program_keeps_its_addresses() -> None:
    from nki.ir.parser import parse_program
    from nki.passes import prepare

    def kernel(x):
        for _ in range(5):
            touch(tile(ROOM // 4))
        return x

    found = program(kernel)
    again = parse_program(str(found), "again")
    prepare(again)
    assert addresses(again) == addresses(found)
