"""Plans of loops on the device whose tiles the user placed, and of outputs that overwrite what places another one."""

from __future__ import annotations

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from tests.language.both import both, f32, number, register_of, tile
from tests.language.run import down, up


def test_a_placed_tile_of_a_loop_is_new_in_every_pass() -> None:
    """What an inner loop has added to it belongs to its pass only, though its memory is shared with another tile."""

    @nki.jit
    def kernel(n, x):
        passes, left, total = register_of(n), up(x), tile((2, 4), 0.0)
        for _ in nl.dynamic_range(passes):
            tile((2, 4), 1.0, buffer=nl.psum, address=(0, 0))
            acc = nl.ndarray((2, 4), nl.float32, nl.psum, address=(0, 0))
            for _ in nl.dynamic_range(2):
                nisa.nc_matmul(dst=acc, stationary=left[:, 0:2], moving=left)
            nisa.tensor_tensor(dst=total, data1=acc, data2=total, op=nl.add)
        return down(total)

    x = np.arange(8, dtype=f32).reshape(2, 4)
    np.testing.assert_array_equal(both(kernel, number(3), x), 3 * 2 * (x[:, :2].T @ x))


def test_an_output_may_overwrite_the_index_of_another() -> None:
    @nki.jit
    def kernel(x):
        out, index = tile((4, 8), 7.0), tile((4, 1), 2, nl.int32)
        sums = index.view(nl.float32)
        place = out[:, nl.ds(index[0:1, :], 1)]
        nisa.activation_reduce(dst=place, op=nl.copy, data=up(x), reduce_op=nl.add, reduce_res=sums)
        return down(out), down(sums)

    x = np.full((4, 1), 1.5, f32)
    expected = np.full((4, 8), 7, f32)
    expected[:, 2] = 1.5
    out, sums = both(kernel, x)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(sums, x)
