"""`all_reduce`: values of one rank, and the rules of collectives on lists of tensors (semantics rule 137)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.collectives as ncc
import nki.language as nl
from nki import errors
from nki.ir.program import Access, Buffer
from nki.target import get_target
from tests.collectives.single_rank import ALONE, X, hbm, load, node, noted, refused, run, sbuf, store


@pytest.mark.parametrize("op", [nl.add, nl.minimum, nl.maximum])
def test_one_rank_gets_what_it_gave(op) -> None:
    def kernel(x, y):
        first, second = hbm(x.shape), hbm(y.shape, y.dtype)
        ncc.all_reduce(srcs=[x, y], dsts=[first, second], replica_group=ALONE, op=op)
        return first, second

    y = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    first, second = run(kernel, X, y)
    np.testing.assert_array_equal(first, X)
    assert second.dtype == y.dtype and second.tobytes() == y.tobytes()


def test_tiles_and_windows() -> None:
    def kernel(x):
        tile = load(x)
        wide = sbuf((4, 16))
        ncc.all_reduce([tile], [wide[:, 4:12]], ALONE, nl.add)
        return store(wide[:, 4:12])

    np.testing.assert_array_equal(run(kernel, X), X)


def test_in_place() -> None:
    def kernel(x):
        tile = load(x)
        ncc.all_reduce([tile], [tile], ALONE, nl.add)
        return store(tile)

    np.testing.assert_array_equal(run(kernel, X), X)


def test_operators_are_few() -> None:
    def kernel(x):
        ncc.all_reduce([x], [hbm(x.shape)], ALONE, nl.multiply)
        return x

    refused(kernel, errors.OperatorError, "`multiply` cannot be used here")


def test_one_kind_of_memory() -> None:
    def kernel(x):
        ncc.all_reduce([x], [sbuf(x.shape)], ALONE, nl.add)
        return x

    refused(kernel, errors.MemoryError_, "all tensors live in HBM, or all in SBUF")


def test_several_tensors_only_in_hbm() -> None:
    def kernel(x):
        tiles = [load(x), load(x)]
        ncc.all_reduce(tiles, tiles, ALONE, nl.add)
        return x

    refused(kernel, errors.LimitError, "several tensors at once only in HBM")


def test_psum_takes_no_part() -> None:
    def kernel(x):
        tile = nl.ndarray(x.shape, nl.float32, buffer=nl.psum)
        ncc.all_reduce([tile], [tile], ALONE, nl.add)
        return x

    refused(kernel, errors.MemoryError_, r"`srcs\[0\]` must live in")


def test_two_dimensions_in_sbuf() -> None:
    def kernel(x):
        tile = sbuf((4, 2, 4))
        ncc.all_reduce([tile], [sbuf((4, 2, 4))], ALONE, nl.add)
        return x

    refused(kernel, errors.OperandShapeError, "tensors of two dimensions")


def test_lists_go_together() -> None:
    def kernel(x):
        ncc.all_reduce([x, x], [hbm(x.shape)], ALONE, nl.add)
        return x

    refused(kernel, errors.ArgumentError, "one tensor for each other")


def test_nothing_is_converted() -> None:
    def kernel(x):
        ncc.all_reduce([x], [hbm(x.shape, nl.bfloat16)], ALONE, nl.add)
        return x

    refused(kernel, errors.OperandDtypeError, "does not convert")


def test_sizes() -> None:
    def kernel(x):
        ncc.all_reduce([x], [hbm((4, 4))], ALONE, nl.add)
        return x

    refused(kernel, errors.OperandShapeError, "has room for what comes in")


def test_shapes_of_one_size_are_warned_about() -> None:
    def kernel(x):
        out = hbm((8, 4))
        ncc.all_reduce([x], [out], ALONE, nl.add)
        return out

    assert noted(kernel) == [
        ("warning", "all_reduce: the shapes of source and destination go together (inferred)")
    ]
    np.testing.assert_array_equal(run(kernel, X), X.reshape(8, 4))


def test_priority_is_for_trn3() -> None:
    def kernel(x, priority=0):
        out = hbm(x.shape)
        ncc.all_reduce([x], [out], ALONE, nl.add, priority=priority)
        return out

    refused(kernel, errors.TargetError, "`priority` is a class of service of trn3")
    np.testing.assert_array_equal(run(kernel, X, target="trn3"), X)
    with pytest.raises(errors.LimitError, match="from 0 to 3"):
        nki.jit(kernel).ir(X, priority=4, target="trn3")


def test_a_single_tensor_is_no_list() -> None:
    def kernel(x):
        ncc.all_reduce(x, [hbm(x.shape)], ALONE, nl.add)
        return x

    refused(kernel, errors.ArgumentError, "`srcs` must be a list of tensors")


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_cost(target: str) -> None:
    """The bytes are moved by DMA; in a ring of n ranks there are 2 (n - 1) hops besides."""
    machine = get_target(target)
    src, dst = (Access.whole(Buffer(name, (4, 8), nl.float32, nl.shared_hbm)) for name in ("src", "dst"))
    alone = node(ncc.all_reduce, srcs=(src,), dsts=(dst,), replica_group=((0,),)).cost(machine)
    assert [phase.kind for phase in alone] == ["collective"]
    assert alone[0].transfer is not None and alone[0].transfer.total_bytes == 4 * 8 * 4
    ring = node(ncc.all_reduce, srcs=(src,), dsts=(dst,), replica_group=((0, 1, 2, 3),))
    ring.engine = type(ring).engines[0]
    hops = ring.cost(machine)[-1]
    assert hops.kind == "hops"
    wanted = 6 * machine.collective_hop_ps
    assert abs(machine.cycles_ps(ring.engine, hops.latency) - wanted) <= 1_000
