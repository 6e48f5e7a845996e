"""`sendrecv`: two cores exchange tiles (semantics rule 134)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.target import get_target
from tests.isa.two_cores import FAR, X, both, exchange, own, refused, run, shared, swapped, tile

ENGINES = [nisa.dma_engine.dma, nisa.dma_engine.gpsimd_dma]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_each_core_gets_the_others_tile(engine: Any, target: str) -> None:
    found = run(lambda x: both(swapped(x, dma_engine=engine)), target=target)
    np.testing.assert_array_equal(found, np.stack([X + FAR, X]))


def test_source_comes_first() -> None:
    def kernel(x):
        peer = 1 - nl.program_id(0)
        mine, dst = own(x), tile(x.shape)
        nisa.sendrecv(mine, dst, peer, peer, 0)
        return both(dst)

    np.testing.assert_array_equal(run(kernel), np.stack([X + FAR, X]))


@pytest.mark.parametrize("rows", [1, 5, 17, 100, 128])
@pytest.mark.parametrize("engine", ENGINES)
def test_any_number_of_partitions(rows: int, engine: Any) -> None:
    """Not only multiples of 16 (fixed in release 0.4)."""
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    found = run(lambda x: both(swapped(x, dma_engine=engine)), x)
    np.testing.assert_array_equal(found, np.stack([x + FAR, x]))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float16])
def test_bytes_travel_unchanged(dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 4, 8 * np.dtype(dtype).itemsize), np.uint8).view(dtype)

    def kernel(x):
        mine, dst = tile(x.shape[1:], x.dtype), tile(x.shape[1:], x.dtype)
        nisa.dma_copy(dst=mine, src=x[nl.program_id(0)])
        exchange(mine, dst)
        return both(dst)

    assert run(kernel, x).tobytes() == x[::-1].tobytes()


def test_one_tile_may_be_both() -> None:
    def kernel(x):
        mine = own(x)
        exchange(mine, mine)
        return both(mine)

    np.testing.assert_array_equal(run(kernel), np.stack([X + FAR, X]))


def test_windows_may_lie_differently_on_the_cores() -> None:
    """One core's tile is a column slice of a wider one, the other's is contiguous: shapes count, not strides."""

    def kernel(x):
        me = nl.program_id(0)
        wide, small, dst = tile((4, 2, 8)), tile((4, 2, 4)), tile((4, 2, 6))
        src = wide[:, :, 2:6] if me else small
        got = dst[:, :, 1:5] if me else small
        nisa.dma_copy(dst=src, src=x.reshape((4, 2, 4)))
        nisa.tensor_scalar(dst=src, data=src, op0=nl.add, operand0=FAR * me)
        exchange(src, got)
        return both(got)

    np.testing.assert_array_equal(run(kernel).reshape(2, 4, 8), np.stack([X + FAR, X]))


def test_calls_of_one_pipe_pair_up_in_order() -> None:
    def kernel(x):
        mine = own(x)
        received = [tile(x.shape) for _ in range(3)]
        for number, dst in enumerate(received):
            nisa.tensor_scalar(dst=mine, data=mine, op0=nl.add, operand0=1.0)
            exchange(mine, dst, pipe=7)
            if number == 1:
                nisa.tensor_scalar(dst=mine, data=mine, op0=nl.multiply, operand0=2.0)
        out = shared((2, 3, 4, 8))
        for number, dst in enumerate(received):
            nisa.dma_copy(dst=out[nl.program_id(0), number], src=dst)
        return out

    def sent(x):
        return np.stack([x + 1, x + 2, (x + 2) * 2 + 1])

    np.testing.assert_array_equal(run(kernel), np.stack([sent(X + FAR), sent(X)]))


def test_pipes_do_not_hold_each_other_up() -> None:
    """The cores issue two exchanges of different groups in opposite order."""

    def kernel(x):
        mine = own(x)
        received = [tile(x.shape), tile(x.shape)]
        for pipe in (0, 1) if nl.program_id(0) == 0 else (1, 0):
            exchange(mine, received[pipe], pipe)
        total = tile(x.shape)
        nisa.tensor_tensor(dst=total, data1=received[0], data2=received[1], op=nl.add)
        return both(total)

    np.testing.assert_array_equal(run(kernel), np.stack([2 * (X + FAR), 2 * X]))


def test_a_core_goes_no_further_than_its_data_allow() -> None:
    """Core 0's second exchange gives what its first one brings, and core 1 has them the other way round."""

    def kernel(x):
        mine, first, second = own(x), tile(x.shape), tile(x.shape)
        if nl.program_id(0) == 0:
            exchange(mine, first, pipe=0)
            exchange(first, second, pipe=1)
        else:
            exchange(mine, second, pipe=1)
            exchange(mine, first, pipe=0)
        return both(second)

    np.testing.assert_array_equal(run(kernel), np.stack([X + FAR, X + FAR]))


def test_real_circles_are_deadlocks() -> None:
    """Each core needs what the other one gives only after it has got it."""

    def kernel(x):
        mine, dst, other = own(x), tile(x.shape), tile(x.shape)
        pipes = (0, 1) if nl.program_id(0) == 0 else (1, 0)
        exchange(mine, dst, pipes[0])
        exchange(dst, other, pipes[1])
        return both(other)

    refused(kernel, errors.DeadlockError, "wait for each other")


def test_needs_two_cores() -> None:
    def kernel(x):
        exchange(own(x), tile(x.shape))
        return x

    for launched in (nki.jit(kernel), nki.jit(kernel)[1]):
        with pytest.raises(errors.RuleError, match="the kernel runs on one"):
            nki.simulate(launched, target="trn2")(X)


def test_does_not_exist_on_trn1() -> None:
    def kernel(x):
        exchange(own(x), tile(x.shape))
        return x

    with pytest.raises(errors.TargetError, match="does not exist on trn1"):
        nki.jit(kernel).ir(X, target="trn1")


@pytest.mark.parametrize("ranks", [(0, 0), (1, 0), (0, 1)])
def test_not_with_oneself(ranks: tuple[int, int]) -> None:
    def kernel(x):
        nisa.sendrecv(own(x), tile(x.shape), *ranks, 0)
        return x

    refused(kernel, errors.ArgumentError, "can exchange with core")


def test_ranks_are_cores() -> None:
    def kernel(x):
        nisa.sendrecv(own(x), tile(x.shape), 2, 2, 0)
        return x

    refused(kernel, errors.ArgumentError, "ranks are 0 or 1")


def test_tiles_agree() -> None:
    def dtypes(x):
        exchange(own(x), tile(x.shape, nl.int32))
        return x

    def shapes(x):
        exchange(own(x), tile((4, 2, 4)))
        return x

    def sizes(x):
        exchange(own(x), tile((4, 4)))
        return x

    refused(dtypes, errors.OperandDtypeError, "have one dtype")
    refused(shapes, errors.OperandShapeError, "have one shape")
    refused(sizes, errors.OperandShapeError, "dimension F")


def test_sbuf_only() -> None:
    def kernel(x):
        exchange(nl.ndarray(x.shape, nl.float32, buffer=nl.psum), tile(x.shape))
        return x

    refused(kernel, errors.MemoryError_, "`src` must live in sbuf")


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 1024), (np.float16, 512), (np.uint8, 256)])
def test_gpsimd_takes_small_tiles(dtype: Any, most: int) -> None:
    def kernel(x):
        return both(swapped(x, dma_engine=nisa.dma_engine.gpsimd_dma))

    width = np.dtype(dtype).itemsize
    fits = np.ones((2, most // width), dtype)
    run(kernel, fits)
    error = refused(kernel, errors.LimitError, "small tiles", np.ones((2, most // width + 1), dtype))
    assert f"at most {most} bytes" in str(error)


def test_the_cores_exchange_alike_tiles() -> None:
    def kernel(x):
        shape = (4, 8) if nl.program_id(0) else (2, 16)
        mine = tile(shape)
        nisa.memset(mine, 1.0)
        exchange(mine, tile(shape))
        return x

    error = refused(kernel, errors.OperandShapeError, "different shapes or dtypes")
    assert len(error.notes) == 2 and "core 0: " in error.notes[0] and "[4, 8]" in error.notes[1]


def test_old_keyword() -> None:
    def kernel(x):
        exchange(own(x), tile(x.shape), use_gpsimd_dma=True)
        return x

    refused(kernel, errors.UnknownKeywordError, "use_gpsimd_dma")


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_cost_is_that_of_a_dma(target: str) -> None:
    program = nki.jit(lambda x: both(swapped(x)))[2].ir(X, target=target)
    node = next(i for i in program.instructions() if i.mnemonic == "sendrecv")
    (phase,) = node.cost(get_target(target))
    assert phase.transfer is not None and phase.transfer.total_bytes == X.nbytes
