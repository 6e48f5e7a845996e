"""`core_barrier`: what both cores wrote before is visible to both afterwards (semantics rule 133)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.target import get_target
from tests.isa.two_cores import FAR, X, both, own, refused, run, shared, tile


def halves(x: Any, **more: Any) -> Any:
    """Each core writes its half of a shared tensor; both read all of it after the barrier."""
    data = shared((8, 8))
    me = nl.program_id(0)
    nisa.dma_copy(dst=data[4 * me : 4 * me + 4, :], src=own(x))
    nisa.core_barrier(data, (0, 1), **more)
    whole = tile((8, 8))
    nisa.dma_copy(dst=whole, src=data)
    return both(whole)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_both_see_what_both_wrote(target: str) -> None:
    whole = np.concatenate([X, X + FAR])
    np.testing.assert_array_equal(run(halves, target=target), np.stack([whole, whole]))


@pytest.mark.parametrize("name", ["gpsimd", "sync", "scalar", "vector", "tensor"])
def test_engines(name: str) -> None:
    engine = getattr(nisa.engine, name)
    program = nki.jit(halves)[2].ir(X, engine=engine, target="trn2")
    nodes = [i for i in program.instructions() if i.mnemonic == "core_barrier"]
    assert [node.engine for node in nodes] == [engine, engine]
    (phase,) = nodes[0].cost(get_target("trn2"))
    assert phase.interval > 0 and phase.kind == "barrier"


def test_gpsimd_is_the_default() -> None:
    program = nki.jit(halves)[2].ir(X, target="trn2")
    assert (
        next(i for i in program.instructions() if i.mnemonic == "core_barrier").engine is nisa.engine.gpsimd
    )


@pytest.mark.parametrize("cores", [(0,), (1, 0), (0, 1, 2), 0])
def test_cores(cores: Any) -> None:
    def kernel(x):
        nisa.core_barrier(x, cores)
        return x

    refused(kernel, errors.ArgumentError, r"`cores` is \(0, 1\)")


def test_data_are_shared() -> None:
    def private(x):
        nisa.core_barrier(nl.ndarray((4, 8), nl.float32, buffer=nl.private_hbm), (0, 1))
        return x

    def on_chip(x):
        nisa.core_barrier(own(x), (0, 1))
        return x

    refused(private, errors.MemoryError_, "`data` must live in shared_hbm")
    refused(on_chip, errors.MemoryError_, "`data` must live in shared_hbm")


def test_data_need_no_content() -> None:
    """The tensor is only named."""

    def kernel(x):
        nisa.core_barrier(shared((4, 8)), (0, 1))
        return both(own(x))

    np.testing.assert_array_equal(run(kernel), np.stack([X, X + FAR]))


def test_needs_two_cores() -> None:
    def kernel(x):
        nisa.core_barrier(shared((4, 8)), (0, 1))
        return x

    for launched in (nki.jit(kernel), nki.jit(kernel)[1]):
        with pytest.raises(errors.RuleError, match="the kernel runs on one"):
            nki.simulate(launched, target="trn2")(X)
    with pytest.raises(errors.TargetError, match="does not exist on trn1"):
        nki.jit(kernel).ir(X, target="trn1")


def test_one_core_at_a_barrier() -> None:
    def kernel(x):
        if nl.program_id(0) == 1:
            nisa.core_barrier(x, (0, 1))
        return x

    error = refused(kernel, errors.DeadlockError, "wait for each other for ever")
    assert error.notes[0] == "core 0: has come to its end"
    assert "core 1: waits in core_barrier" in error.notes[1]
