"""dma_compute with an index per row: gather and scatter sums against loops, rows outside, repeated rows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.dynamic import column, everywhere, one
from tests.isa.tiles import load, sbuf, staged, store, whole_numbers

BF16 = ml_dtypes.bfloat16
SKIP = nisa.oob_mode.skip


def scatter(first, **options):
    @nki.jit
    def kernel(data, values, index):
        rows = data.vector_select(0, load(index))
        tile = load(values)
        nisa.dma_compute(dst=rows, srcs=[rows, tile] if first else [tile, rows], reduce_op=nl.add, **options)
        return data

    return kernel


def gather(**options):
    @nki.jit
    def kernel(data, values, index):
        tile = load(values)
        rows = data.ap([[1, values.shape[0]], [1, values.shape[1]]], vector_offset=load(index))
        nisa.dma_compute(dst=tile, srcs=[tile, rows], reduce_op=nl.add, **options)
        return store(tile)

    return kernel


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("dtype", ["f4", BF16])
def test_rule_101_scatter(dtype, first):
    data, values = whole_numbers((8, 3)).astype(dtype), whole_numbers((4, 3), seed=1).astype(dtype)
    for rows in ([7, 0, 2, 1], [3, 4, 5, 6]):
        expected = data.copy()
        for p, row in enumerate(rows):
            expected[row] = (data[row].astype(np.float32) + values[p].astype(np.float32)).astype(dtype)
        assert everywhere(scatter(first), data, values, column(*rows)).tobytes() == expected.tobytes()


def test_rule_101_gather_may_repeat_rows():
    data, values, rows = whole_numbers((8, 3)), whole_numbers((4, 3), seed=1), [7, 0, 0, 2]
    expected = [(values[p] + data[row]).tolist() for p, row in enumerate(rows)]
    assert everywhere(gather(), data, values, column(*rows)).tolist() == expected


def test_rows_outside():
    data, values, rows = whole_numbers((5, 3)), whole_numbers((4, 3), seed=1), [4, 5, 0xFFFFFFFF, 0]
    gathered = [
        (values[p] + data[row]).tolist() if row < 5 else values[p].tolist() for p, row in enumerate(rows)
    ]
    assert everywhere(gather(oob_mode=SKIP), data, values, column(*rows)).tolist() == gathered
    expected = data.copy()
    expected[4] += values[0]
    expected[0] += values[3]
    assert everywhere(scatter(True, oob_mode=SKIP), data, values, column(*rows)).tolist() == expected.tolist()
    for kernel in (gather(), scatter(True)):
        with pytest.raises(errors.DynamicBoundsError, match="index 5"):
            nki.simulate(kernel)(data.copy(), values, column(*rows))


def test_case_43_repeated_rows_are_reported():
    data = np.zeros((4, 2), np.float32)
    for eager in (False, True):
        with pytest.raises(errors.RuleError, match="row 1 of `data` appears twice") as caught:
            nki.simulate(scatter(True), eager=eager)(data, np.ones((2, 2), np.float32), column(1, 1))
        assert "partitions 0, 1" in str(caught.value) and not data.any()


def test_software_descriptors():
    arrays = (np.zeros((4, 2), np.float32), np.ones((2, 2), np.float32), column(1, 2))
    (node,) = staged(scatter(True), "dma_compute", *arrays)
    assert node.engine is nisa.engine.gpsimd


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (
            lambda d, t, i: nisa.dma_compute(d.vector_select(0, i), [d.vector_select(0, i)], nl.add),
            "two sources",
        ),
        (lambda d, t, i: nisa.dma_compute(d.vector_select(0, i), [t, t], nl.add), "one and the same view"),
        (lambda d, t, i: nisa.dma_compute(d[0:2], [d[0:2], d.vector_select(0, i)], nl.add), "dst in sbuf"),
        (
            lambda d, t, i: nisa.dma_compute(t, [t, d.vector_select(0, i)], nl.add, None, False),
            "unique_indices",
        ),
        (lambda d, t, i: nisa.dma_compute(t, [t, d[nl.ds(i[0:1], 2)]], nl.add), "known beforehand"),
        (lambda d, t, i: nisa.dma_compute(t, [t, t], nl.add, oob_mode=SKIP), "without an index"),
    ],
)
def test_refused(call, word):
    @nki.jit
    def kernel(data, index):
        call(data, sbuf((2, 2)), load(index))
        return data

    with pytest.raises(errors.RuleError, match=word):
        kernel.ir(np.zeros((4, 2), np.float32), column(1, 2), target="trn2")
    assert one(0).shape == (1, 1)


def test_legality_is_judged_by_which_tensors_are_meant():
    """The second call looks like the first, but adds the rows of another tensor."""

    @nki.jit
    def kernel(data, other, index):
        tile, where = sbuf((2, 2)), load(index)
        nisa.memset(dst=tile, value=1.0)
        rows, others = data.vector_select(0, where), other.vector_select(0, where)
        nisa.dma_compute(dst=rows, srcs=[rows, tile], reduce_op=nl.add)
        nisa.dma_compute(dst=rows, srcs=[others, tile], reduce_op=nl.add)
        return data

    with pytest.raises(errors.RuleError, match="one and the same view"):
        kernel.ir(np.zeros((4, 2), np.float32), np.zeros((4, 2), np.float32), column(1, 2), target="trn2")
