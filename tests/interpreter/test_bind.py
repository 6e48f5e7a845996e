"""Instructions bound to arrays give what they give on copies of their operands, whatever overlaps.

The chains of `chains.py` reuse and overlap a few tiles of several types; `oracle.py` runs the same program on copies.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from tests.interpreter.chain_kernel import kernel_of
from tests.interpreter.chains import Chain, inputs
from tests.interpreter.oracle import Oracle

f32 = np.float32


def equal(found: Any, expected: Any, what: str = "") -> None:
    """The same values; all NaN are one, as their bits depend on the order of the operands."""
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64), what)


@example(1338)  # a placed tile overwritten while another one still reads it
@example(4947)  # reduce_res inside a dst that is stored later
@given(st.integers(0, 1 << 32))
def test_chains_agree_with_the_oracle(seed: int) -> None:
    kernel = kernel_of(Chain.of(seed))
    program = kernel.ir(*inputs(0))
    for data in (1, 2):
        arrays = {b.name: a for b, a in zip(program.arguments, inputs(data))}
        expected = Oracle(program, arrays).run()
        for buffer, found, wanted in zip(program.results, kernel(*inputs(data)), expected):
            equal(found, wanted, f"seed {seed}, data {data}: {buffer.describe()}")


def test_chains_reach_every_kind_of_step() -> None:
    taken: list[str] = []
    offered = 0
    for seed in range(12):
        chain = Chain.of(seed)
        offered += len(chain.steps)
        kernel_of(chain, taken).ir(*inputs(0))
    assert len(taken) > offered / 2
    assert len(Counter(taken)) >= 10


def up(source: Any, buffer: Any = nl.sbuf, address: Any = None) -> Any:
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=buffer, address=address)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def down(tile: Any) -> Any:
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=tile)
    return result


@nki.jit
def shifted(x, step):
    tile = up(x)
    n = tile.shape[1] - 1
    to, source = (tile[:, 1:], tile[:, :n]) if step > 0 else (tile[:, :n], tile[:, 1:])
    nisa.tensor_scalar(
        dst=to, data=source, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=source[:, 0:1]
    )
    return down(tile)


@pytest.mark.parametrize("dtype", [f32, np.float16, np.int32])
@pytest.mark.parametrize("step", [1, -1])
def test_destination_overlaps_a_shifted_source_and_a_column(dtype: Any, step: int) -> None:
    x = np.arange(24).reshape(3, 8).astype(dtype)
    wide = x.astype(f32)
    source = wide[:, :-1] if step > 0 else wide[:, 1:]
    expected = wide.copy()
    (expected[:, 1:] if step > 0 else expected[:, :-1])[...] = source * 2 + source[:, :1]
    equal(shifted(x, step), expected.astype(dtype))


@nki.jit
def moved_in_hbm(x, y):
    flat = x.reshape((24,))
    nisa.dma_copy(dst=flat[3:24], src=flat[0:21])
    nisa.dma_copy(dst=y.reshape((24,))[0:21], src=y.reshape((24,))[3:24])
    return x, y


def test_dma_within_one_tensor_reads_before_it_writes() -> None:
    x = np.arange(24, dtype=f32).reshape(4, 6)
    y = x.copy()
    moved_in_hbm(x, y)
    values = list(range(24))
    assert x.reshape(-1).tolist() == values[:3] + values[:21]
    assert y.reshape(-1).tolist() == values[3:] + values[21:]


@nki.jit
def moved_with_other_steps(x, y):
    tile = up(x)
    nisa.dma_copy(dst=tile[:, 6:18], src=tile[:, 0:24:2])
    flat = y.reshape((24,))
    nisa.dma_copy(dst=flat[6:18], src=flat[0:24:2])
    return down(tile), y


def test_copies_of_every_second_element_onto_themselves() -> None:
    x, y = np.arange(24, dtype=f32).reshape(1, 24), np.arange(24, dtype=np.int16).reshape(4, 6)
    expected = x.copy()
    expected[:, 6:18] = x[:, 0:24:2]
    moved, _ = moved_with_other_steps(x, y)
    equal(moved, expected)
    equal(y.reshape(1, 24), expected)


@nki.jit
def sum_inside_dst(x, dtype):
    tile = nl.ndarray(x.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.activation(
        dst=tile,
        op=nl.copy,
        data=up(x),
        reduce_op=nl.add,
        reduce_res=tile[:, 2:3],
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    return down(tile)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_outputs_are_stored_in_order(dtype: str) -> None:  # semantics rule 46
    x = np.arange(12, dtype=f32).reshape(2, 6)
    expected = x.copy()
    expected[:, 2] = x.sum(axis=1)
    equal(sum_inside_dst(x, dtype), expected)


@nki.jit
def sum_inside_the_bytes_of_dst(x):
    tile = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.activation(
        dst=tile,
        op=nl.copy,
        data=up(x),
        reduce_op=nl.add,
        reduce_res=tile.view(nl.float32)[:, 1:2],
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    out = nl.ndarray((x.shape[0], x.shape[1] // 2), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile.view(nl.float32))
    return down(tile), out


def test_a_result_in_the_bytes_of_a_converted_output_stays() -> None:
    x = np.arange(12, dtype=f32).reshape(2, 6)
    narrow, wide = sum_inside_the_bytes_of_dst(x)
    assert wide[:, 1].tolist() == x.sum(axis=1).tolist()
    assert narrow[:, [0, 1, 4, 5]].astype(f32).tolist() == x[:, [0, 1, 4, 5]].tolist()


def test_one_partition_in_several_shapes() -> None:
    @nki.jit
    def kernel(x):
        tile, total = nl.ndarray((1, 2, 4), dtype=x.dtype, buffer=nl.sbuf), nl.ndarray((1, 1), dtype=x.dtype)
        nisa.activation(
            dst=tile,
            op=nl.copy,
            data=up(x),
            bias=up(x)[:, 1:2],
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return down(tile), down(total)

    tile, total = kernel(np.arange(8, dtype=f32).reshape(1, 8))
    equal(tile.reshape(-1), np.arange(8) + 1)
    assert total.tolist() == [[36.0]]


@nki.jit
def piled(x):
    tile = up(x)
    rows, columns = x.shape
    nisa.tensor_copy(dst=tile.ap([[columns, rows], [0, columns]], offset=1), src=tile)
    return down(tile)


def test_last_write_to_a_repeated_destination_wins() -> None:  # semantics rule 36
    x = np.arange(12, dtype=f32).reshape(2, 6)
    expected = x.copy()
    expected[:, 1] = x[:, -1]
    equal(piled(x), expected)


@nki.jit
def laid_over(x, y):
    lower = nl.ndarray((4, 64), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
    upper = nl.ndarray((4, 64), dtype=nl.float32, buffer=nl.sbuf, address=(2, 32))
    nisa.dma_copy(dst=lower, src=x)
    nisa.dma_copy(dst=upper, src=y.reshape((2, 2, 64)))
    return down(lower), down(upper)


@pytest.mark.parametrize("eager", [False, True])
def test_overlapping_addresses_share_their_bytes(eager: bool) -> None:
    x, y = np.ones((4, 64), f32), np.full((4, 64), 2, f32)
    lower, upper = nki.simulate(laid_over, eager=eager)(x, y)
    expected = x.copy()
    expected[2:, 8:] = 2
    equal(lower, expected)
    equal(upper, y)


@nki.jit
def read_twice(x, y):
    narrow = up(x)
    first, second = (nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.tensor_tensor(dst=first, data1=narrow, data2=narrow, op=nl.add)
    nisa.tensor_copy(dst=narrow[:, 0:2], src=first[:, 0:2])
    nisa.tensor_tensor(dst=second, data1=narrow, data2=first, op=nl.add)
    nisa.dma_copy(dst=narrow, src=y)
    nisa.tensor_tensor(dst=first, data1=narrow, data2=second, op=nl.add)
    return down(first), down(second)


def test_widened_copies_do_not_outlive_a_write() -> None:
    x, y = np.full((2, 4), 3, np.float16), np.full((2, 4), 5, np.float16)
    first, second = read_twice(x, y)
    expected = np.full((2, 4), 9, f32)
    expected[:, :2] = 12
    equal(second, expected)
    equal(first, expected + 5)


def test_moved_tfloat32_keeps_its_bits() -> None:
    """Tiles in one image may seem to overlap, and then go through scratch: moved bits are not rounded there."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        column = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        row = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf, address=(0, 32))
        nisa.dma_copy(dst=column, src=x)
        nisa.dma_copy(dst=row, src=x)
        nisa.dma_copy(dst=column.view(nl.tfloat32)[:, 1:2], src=row.view(nl.tfloat32)[0:1, 0:4])
        nisa.dma_copy(dst=out, src=column)
        return out

    x = np.random.default_rng(0).standard_normal((4, 8), f32)
    want = x.copy()
    want[:, 1] = x[0, :4]
    for eager in (False, True):
        assert nki.simulate(kernel, eager=eager)(x).tobytes() == want.tobytes()
