"""Compute instructions on windows in SBUF and PSUM that a register or a tile with one value moves."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.isa.costs import least_interval
from nki.target import get_target
from tests.isa.dynamic import everywhere, one
from tests.isa.tiles import load, psum, sbuf, staged, store, whole_numbers

BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", ["f4", BF16, "i4"])
@pytest.mark.parametrize("in_psum", [False, True])
def test_moved_sources_and_destinations(dtype, in_psum):
    @nki.jit
    def kernel(x, n):
        tile, register = load(x), nisa.register_alloc()
        nisa.register_load(register, n)
        if in_psum:
            other = psum(x.shape, x.dtype)
            nisa.tensor_copy(dst=other, src=tile)
            tile = other
        part = sbuf((x.shape[0], 3), nl.float32)
        nisa.tensor_copy(
            dst=part, src=tile.ap([[8, x.shape[0]], [1, 3]], scalar_offset=register, indirect_dim=1)
        )
        nisa.tensor_scalar(dst=tile[:, nl.ds(register, 3)], data=part, op0=nl.multiply, operand0=2.0)
        nisa.tensor_copy(dst=part, src=tile[:, 0:3])
        return store(part), store(tile)

    x = whole_numbers((40, 8), 0, 50).astype(dtype)
    for n in (0, 2, 5):
        part, tile = everywhere(kernel, x, one(n))
        expected = x.copy()
        expected[:, n : n + 3] = (x[:, n : n + 3].astype(np.float32) * 2).astype(dtype)
        assert tile.tobytes() == expected.tobytes()
        assert part.tolist() == expected[:, 0:3].astype(np.float32).tolist()
    for n in (6, -1):
        with pytest.raises(errors.DynamicBoundsError, match=r"0\.\.5"):
            nki.simulate(kernel)(x, one(n))


def test_a_window_stays_in_its_partition():
    """Half the partitions: the storage has room behind the window, its partitions have not."""

    @nki.jit
    def kernel(x, n):
        tile, part = load(x), sbuf((2, 4))
        nisa.tensor_copy(dst=part, src=tile.ap([[8, 2], [1, 4]], scalar_offset=load(n), indirect_dim=1))
        return store(part)

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    assert everywhere(kernel, x, one(4)).tolist() == x[0:2, 4:8].tolist()
    with pytest.raises(errors.DynamicBoundsError, match=r"index 5 .*0\.\.4|index 5 leaves"):
        nki.simulate(kernel)(x, one(5))


def test_one_tile_on_both_sides():
    @nki.jit
    def kernel(x, n):
        tile, index = load(x), load(n)
        nisa.tensor_copy(dst=tile[:, 1:5], src=tile[:, nl.ds(index, 4)])
        nisa.tensor_tensor(dst=tile[:, nl.ds(index, 4)], data1=tile[:, 0:4], data2=tile[:, 2:6], op=nl.add)
        return store(tile)

    x = whole_numbers((4, 8))
    for n in range(5):
        expected = x.copy()
        expected[:, 1:5] = x[:, n : n + 4]
        before = expected.copy()
        expected[:, n : n + 4] = before[:, 0:4] + before[:, 2:6]
        assert everywhere(kernel, x, one(n)).tolist() == expected.tolist()


def test_placed_tiles():
    @nki.jit
    def kernel(x, n):
        lower = nl.ndarray((4, 16), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        upper = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, 32))
        nisa.dma_copy(dst=lower, src=x)
        part = sbuf((4, 2))
        nisa.tensor_copy(dst=upper[:, 0:1], src=lower[:, 0:1])
        nisa.tensor_copy(dst=part, src=lower[:, nl.ds(load(n), 2)])
        return store(part)

    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    for n in (0, 7, 14):
        expected = x.copy()
        expected[:, 8] = x[:, 0]
        found = nki.simulate(kernel)(x, one(n))
        assert found.tolist() == expected[:, n : n + 2].tolist()


def test_accumulators_see_moved_data():
    @nki.jit
    def kernel(x, n):
        tile, total, out = load(x), sbuf((4, 1)), sbuf((4, 3))
        nisa.activation(
            dst=out,
            op=nl.copy,
            data=tile[:, nl.ds(load(n), 3)],
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return store(out), store(total)

    x = whole_numbers((4, 8))
    out, total = everywhere(kernel, x, one(5))
    assert out.tolist() == x[:, 5:8].tolist() and total[:, 0].tolist() == x[:, 5:8].sum(1).tolist()


@pytest.mark.parametrize("accumulate", [False, True])
def test_matmul_operands_and_results_move(accumulate):
    @nki.jit
    def kernel(a, b, n):
        left, right, index = load(a), load(b), load(n)
        out = psum((4, 12))
        nisa.memset(dst=out, value=1.0)
        nisa.nc_matmul(
            dst=out.ap([[12, 4], [1, 6]], scalar_offset=index, indirect_dim=1),
            stationary=left[:, nl.ds(index, 4)],
            moving=right,
            accumulate=accumulate,
        )
        return store(out)

    a, b = whole_numbers((8, 10)), whole_numbers((8, 6), seed=1)
    for n in (0, 3, 6):
        expected = np.ones((4, 12), np.float32)
        product = a[:, n : n + 4].T @ b
        expected[:, n : n + 6] = product + 1 if accumulate else product
        assert everywhere(kernel, a, b, one(n)).tolist() == expected.tolist()


def test_matmul_must_know_whether_to_accumulate():
    @nki.jit
    def kernel(a, n):
        left, out = load(a), psum((4, 8))
        nisa.nc_matmul(dst=out[:, nl.ds(load(n), 4)], stationary=left, moving=left)
        return store(out)

    with pytest.raises(errors.RuleError, match="accumulate"):
        nki.simulate(kernel)(whole_numbers((8, 4)), one(0))


def test_a_moved_address_has_its_own_minimum():
    @nki.jit
    def kernel(x, n):
        tile, part = load(x), sbuf((4, 3))
        nisa.tensor_copy(dst=part, src=tile[:, nl.ds(load(n), 3)])
        nisa.tensor_copy(dst=part, src=tile[:, 0:3])
        return store(part)

    target = get_target("trn2")
    moved, fixed = staged(kernel, "tensor_copy", whole_numbers((4, 8)), one(1))
    assert moved.cost(target)[0].interval == target.dynamic_address_min_cycles
    assert fixed.cost(target)[0].interval == least_interval(target, fixed.engine)


def test_index_per_row_is_for_dma():
    @nki.jit
    def kernel(x, rows):
        register = nisa.register_alloc()
        nisa.register_load(register, x.vector_select(0, load(rows)))
        return x

    with pytest.raises(errors.RuleError, match="index per row"):
        nki.simulate(kernel)(np.zeros((4, 1), np.int32), one(0))
