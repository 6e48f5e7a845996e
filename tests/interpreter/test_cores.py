"""The machine with two cores: what they share and what they do not (semantics rules 131, 132, 192)."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.two_cores import FAR, X, both, own, refused, run, shared, tile

# --- what a core knows of itself ----------------------------------------------------------------------------


def test_numbers_of_the_cores() -> None:
    def kernel(x):
        mine = tile((1, 3))
        for column, value in enumerate((nl.program_id(0), nl.num_programs(), nl.program_ndim())):
            nisa.memset(mine[:, column : column + 1], float(value))
        return both(mine)

    np.testing.assert_array_equal(run(kernel), [[[0, 2, 1]], [[1, 2, 1]]])


@pytest.mark.parametrize(("target", "grid", "most"), [("trn2", 3, 2), ("trn3", 8, 2), ("trn1", 2, 1)])
def test_too_many_cores(target: str, grid: int, most: int) -> None:
    def kernel(x):
        return x

    with pytest.raises(errors.TargetError, match=f"cannot be launched on {grid} cores of {target}") as caught:
        nki.simulate(nki.jit(kernel)[grid], target=target)(X)
    assert f"at most kernel[{most}]" in str(caught.value)
    (found,) = nki.jit(kernel)[grid].check(X, target=target)
    assert found.severity == "error" and found.code == "target"


def test_brackets_are_needed_for_two() -> None:
    """Release 0.6 still runs on one core without them (semantics rule 192)."""

    def kernel(x):
        out = shared((1, 1))
        mine = tile((1, 1))
        nisa.memset(mine, float(nl.num_programs() * 10 + nl.program_ndim()))
        nisa.dma_copy(dst=out, src=mine)
        return out

    assert nki.simulate(nki.jit(kernel), target="trn2")(X) == 10
    assert nki.simulate(nki.jit(kernel)[1], target="trn2")(X) == 11
    assert run(kernel) == 21


# --- memory -------------------------------------------------------------------------------------------------


def test_tiles_and_registers_are_private() -> None:
    def kernel(x):
        me = nl.program_id(0)
        mine = tile((4, 8))
        nisa.dma_copy(dst=mine, src=x)
        if me == 1:
            nisa.memset(mine, 5.0)
        register = nisa.register_alloc(me)
        out = shared((2, 1, 8))
        nisa.dma_copy(dst=out[me], src=mine.ap([[8, 1], [1, 8]]))
        seen = tile((1, 8), nl.int32)
        nisa.memset(seen, 0)
        nisa.register_store(seen[:, 0:1], register)
        numbers = shared((2, 1, 8), nl.int32)
        nisa.dma_copy(dst=numbers[me], src=seen)
        return out, numbers

    values, numbers = run(kernel)
    np.testing.assert_array_equal(values[:, 0], [X[0], np.full(8, 5.0)])
    np.testing.assert_array_equal(numbers[:, 0, 0], [0, 1])


def test_private_hbm_is_private_and_shared_hbm_is_not() -> None:
    def kernel(x):
        me = nl.program_id(0)
        private, common = nl.ndarray((4, 8), x.dtype, buffer=nl.private_hbm), shared((4, 8))
        mine = own(x)
        nisa.dma_copy(dst=private, src=mine)
        if me == 1:
            nisa.dma_copy(dst=common, src=mine)
        nisa.core_barrier(common, (0, 1))
        kept, seen = tile(x.shape), tile(x.shape)
        nisa.dma_copy(dst=kept, src=private)
        nisa.dma_copy(dst=seen, src=common)
        return both(kept), both(seen)

    kept, seen = run(kernel)
    np.testing.assert_array_equal(kept, np.stack([X, X + FAR]))
    np.testing.assert_array_equal(seen, np.stack([X + FAR, X + FAR]))


def test_narrow_shared_tensors_are_read_anew() -> None:
    """A widened copy of what the other core has overwritten since must not be used again."""

    def kernel(x):
        me = nl.program_id(0)
        common = shared((4, 8), nl.bfloat16)
        first, second, narrow = tile((4, 8)), tile((4, 8)), tile((4, 8), nl.bfloat16)
        for dst, value in ((first, 1.0), (second, 2.0)):
            if me == 1:
                nisa.memset(narrow, value)
                nisa.dma_copy(dst=common, src=narrow)
            nisa.core_barrier(common, (0, 1))
            nisa.dma_copy(dst=dst, src=common)
            nisa.core_barrier(common, (0, 1))
        nisa.tensor_tensor(dst=first, data1=first, data2=second, op=nl.add)
        return both(first)

    np.testing.assert_array_equal(run(kernel), np.full((2, 4, 8), 3.0))


def test_a_missing_barrier_shows_as_poison() -> None:
    """Core 0 reads what core 1 writes later: NaN in every run, not what the last run left."""

    def kernel(x):
        common = shared((4, 8))
        mine = own(x)
        if nl.program_id(0) == 1:
            nisa.dma_copy(dst=common, src=mine)
        else:
            nisa.dma_copy(dst=mine, src=common)
        return both(mine)

    simulated = nki.simulate(nki.jit(kernel)[2], target="trn2")
    for _ in range(2):
        assert np.isnan(simulated(X)[0]).all()


def test_arguments_are_shared() -> None:
    def kernel(x):
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=x[0:1, :], src=x[3:4, :])
        nisa.core_barrier(x, (0, 1))
        mine = tile(x.shape)
        nisa.dma_copy(dst=mine, src=x)
        return both(mine)

    x = X.copy()
    found = run(kernel, x)
    np.testing.assert_array_equal(x, X[[3, 1, 2, 3]])
    np.testing.assert_array_equal(found, np.stack([x, x]))


# --- what is made and returned ------------------------------------------------------------------------------


def test_shared_tensors_are_made_alike() -> None:
    def shape(x):
        return shared((4, 8) if nl.program_id(0) else (8, 4))

    def more(x):
        out = shared((4, 8))
        if nl.program_id(0):
            extra = shared((4, 8))
            nisa.dma_copy(dst=extra, src=x)
        return out

    for kernel in (shape, more):
        error = refused(kernel, errors.KernelError, "core 1 makes a tensor in shared HBM")
        assert error.span is not None and error.span.frames[-1].file == __file__


def test_shared_tensors_are_told_apart_by_name() -> None:
    def kernel(x):
        if nl.program_id(0) == 0:
            first = nl.ndarray((4, 8), x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=first, src=x)
        second = nl.ndarray((4, 8), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=second, src=x)
        return second

    error = refused(kernel, errors.KernelError, "core 1 makes a tensor in shared HBM")
    assert "`second`" in str(error.found) and "`first`" in str(error.allowed)


def test_returns_agree() -> None:
    def other(x):
        a = nl.ndarray((4, 8), x.dtype, buffer=nl.shared_hbm)
        b = nl.ndarray((4, 8), x.dtype, buffer=nl.shared_hbm)
        return b if nl.program_id(0) else a

    def nothing(x):
        return x if nl.program_id(0) else None

    def reshaped(x):
        out = nl.ndarray((4, 8), x.dtype, buffer=nl.shared_hbm)
        return out.reshape((2, 16)) if nl.program_id(0) else out

    for kernel in (other, nothing, reshaped):
        refused(kernel, errors.ReturnError, "core 1 returns other tensors than core 0")


def test_outputs_live_in_shared_hbm() -> None:
    def kernel(x):
        return nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)

    refused(kernel, errors.ReturnError, "not in shared HBM")


def test_results_under_another_shape() -> None:
    """The tensor is made in its own shape on both cores."""

    def kernel(x):
        out = nl.ndarray((2, 4, 8), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[nl.program_id(0)], src=own(x))
        return out.reshape((8, 8))

    np.testing.assert_array_equal(run(kernel), np.concatenate([X, X + FAR]))
