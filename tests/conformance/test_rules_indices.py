"""Rules 38 to 43, 180 and 181: indices known while staging, and indices that the device computes."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, INFERRED, UNKNOWN, also, rule
from tests.conformance.steps import counted, in_hbm, refused
from tests.isa.single import Out, run, same
from tests.isa.tiles import load, sbuf, store

VIEWS = "nki/test_tensor_views.py"
TENSOR = "nki/test_tensor.py"


def register(tile):
    """A register with the content of a tile of one element."""
    r = nisa.register_alloc()
    nisa.register_load(r, tile)
    return r


@rule(38, DOCUMENTED, "scalar_offset adds index * (stride of indirect_dim in the tensor ap is called on) "
      "to the offset.", open="strides are those of the view")  # fmt: skip
@pytest.mark.parametrize("convert", [register, lambda tile: tile])
def test_rule_038_scalar_offset(convert):
    x, index = counted(3, 4, 8), np.array([[2]], np.int32)
    for dim, expected in ((0, x[2, 0, 1:4]), (1, x[0, 2, 1:4]), (2, x[0, 0, 3:6])):
        found = in_hbm(
            lambda h, i, dim=dim: h.ap(
                [[32, 1], [1, 3]], offset=1, scalar_offset=convert(i), indirect_dim=dim
            ),
            x,
            index,
        )
        same(found, expected[None])


@rule(39, DOCUMENTED, "vector_offset gives one index per partition for dimension 0; the leading step of "
      "the pattern is ignored.",
      "public_cases/test_bounds.py::test_pc_09_rows_out_of_bounds_are_skipped_bit_for_bit")  # fmt: skip
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_rule_039_vector_offset(dtype):
    x, index = counted(5, 8), np.array([[3], [0], [4]], dtype)
    for step in (1, 8):
        found = in_hbm(lambda h, i, step=step: h.ap([[step, 3], [2, 2]], offset=1, vector_offset=i), x, index)
        same(found, x[index[:, 0], 1:5:2])


@rule(40, INFERRED, "The stride of the index is that of the tensor ap is called on: reshape first to "
      "index single elements.")  # fmt: skip
def test_rule_040_stride_of_the_receiver():
    x, index = counted(4, 6), np.array([[7], [1]], np.int32)
    flat = in_hbm(lambda h, i: h.reshape((24,)).ap([[1, 2], [1, 3]], vector_offset=i), x, index)
    same(flat, np.stack([x.ravel()[7:10], x.ravel()[1:4]]))
    rows = in_hbm(lambda h, i: h.reshape((12, 2)).ap([[2, 2], [1, 2]], vector_offset=i), x, index)
    same(rows, x.reshape(12, 2)[[7, 1]])


@rule(41, DOCUMENTED, "One dynamic index per view, not both kinds; vector-indexed tensors lie in HBM; on "
      "chip not dimension 0.", f"{TENSOR}::test_refused_views")  # fmt: skip
def test_rule_041_one_dynamic_index():
    def refuse(view):
        with pytest.raises(errors.NkiError) as caught:
            in_hbm(view, counted(4, 8), np.zeros((2, 1), np.int32), np.zeros((1, 1), np.int32))
        return str(caught.value)

    pattern = [[8, 2], [1, 8]]
    assert "vector_offset" in refuse(lambda h, v, s: h.ap(pattern, vector_offset=v, scalar_offset=s))
    assert "dynamic" in refuse(lambda h, v, s: h.ap(pattern, vector_offset=v).select(0, s))
    indices = np.zeros((4, 1), np.int32)
    assert isinstance(
        refused(lambda t: t.ap([[1, 4], [1, 1]], vector_offset=t), indices), errors.MemoryError_
    )
    assert "dimension 0" in str(refused(lambda t: t.select(0, t[0:1, :]), indices))


@also(41)
def test_rule_041_select_on_the_device():
    x, index = counted(4, 6, 2), np.array([[5]], np.int32)
    same(in_hbm(lambda h, i: h.select(1, i), x, index), x[:, 5])


def gathered(x, index, count=None, target="trn3", body=None):
    """What a copy reads by tensor indirection."""

    @nki.jit
    def kernel(x, index):
        t, i = load(x), load(index)
        view = t.indirect(i, count) if count else t.indirect(i)
        copy = sbuf(view.shape, view.dtype)
        (body or nisa.tensor_copy)(dst=copy, src=view)
        return store(copy)

    return nki.simulate(kernel, target=target)(x, index)


@rule(42, UNKNOWN, "indirect reads columns at offsets in snake order, index[i % 16, i // 16] of each "
      "group of 16 partitions (32 on the Tensor engine); num_elem is index.size of one group by default.")  # fmt: skip
def test_rule_042_tensor_indirection():
    x = counted(32, 8)
    index = np.random.default_rng(0).integers(0, 8, (32, 2)).astype(np.uint32)
    found = gathered(x, index, 20)
    for p in range(32):
        first = p // 16 * 16
        assert found[p].tolist() == [x[p, index[first + i % 16, i // 16]] for i in range(20)]


@rule(43, DOCUMENTED, "Tensor indirection needs trn3 and is taken by listed operands only (data1 and not "
      "data2, data and not bias).", open="that index tensors must start at a multiple of 32 partitions")  # fmt: skip
def test_rule_043_operands_of_indirection():
    x, index = counted(16, 8), np.zeros((16, 1), np.uint32)
    with pytest.raises(errors.TargetError, match="trn2"):
        gathered(x, index, 16, target="trn2")
    add = nisa.tensor_tensor
    plain = gathered(
        x, index, 16, body=lambda dst, src: add(dst=dst, data1=src, data2=src_of(dst), op=nl.add)
    )
    same(plain, np.repeat(x[:, :1], 16, axis=1))
    with pytest.raises(errors.NkiError, match="data2"):
        gathered(x, index, 16, body=lambda dst, src: add(dst=dst, data1=src_of(dst), data2=src, op=nl.add))


def src_of(dst):
    """A tile of zeros like `dst`."""
    zeros = sbuf(dst.shape)
    nisa.memset(dst=zeros, value=0.0)
    return zeros


@rule(44, DOCUMENTED, "is_contiguous ignores the partition dimension on chip; get_pattern gives pairs "
      "that ap accepts.", f"{VIEWS}::test_contiguity_ignores_partitions_and_sizes_of_one",
      f"{VIEWS}::test_pattern_of_a_view_makes_the_same_view")  # fmt: skip
def test_rule_044_patterns_of_views():
    seen = []

    def view(t):
        part = t[:, 0, 2:6]
        seen.extend(
            [
                t.is_contiguous(),
                t[0:1].is_contiguous(),
                part.is_contiguous(),
                t[:, :, 0].is_contiguous(),
                part.get_pattern(),
            ]
        )
        return t.ap(part.get_pattern(), offset=part.offset)

    x = counted(2, 2, 8)
    from tests.conformance.steps import on_chip

    same(on_chip(view, x), x[:, 0, 2:6])
    assert seen == [True, True, True, False, [[16, 2], [1, 4]]]


@rule(180, DOCUMENTED, "Slices need 0 <= start < stop <= size and a step of at least 1; no None, no "
      "arrays, no negative steps.", f"{TENSOR}::test_refused_views",
      "public_cases/test_bounds.py::test_static_addresses_outside_are_refused",
      open="a stop past the end is refused, not clamped")  # fmt: skip
@pytest.mark.parametrize(
    "key", [(slice(0, 5),), (slice(2, 2),), (slice(None, None, -1),), (0, slice(0, 9)), (None,), (0, [1, 2])]
)
def test_rule_180_slices(key):
    assert isinstance(
        refused(lambda t: t[key]), (errors.BoundsError, errors.ShapeError, errors.ArgumentError)
    )


@rule(181, INFERRED, "A DMA pairs elements in row-major order of both views; gathers and scatters keep it.",
      "isa/test_dma_copy.py::test_rule_181_row_major_pairing",
      "isa/test_dma_compute.py::test_rule_181_row_major_pairing_and_hbm_to_hbm")  # fmt: skip
def test_rule_181_row_major():
    x = counted(3, 4)
    same(run(nisa.dma_copy, dst=Out((2, 6)), src=x), x.reshape(2, 6))
    index = np.array([[2], [0]], np.int32)
    same(in_hbm(lambda h, i: h.ap([[4, 2], [1, 4]], vector_offset=i), x, index), x[[2, 0]])
