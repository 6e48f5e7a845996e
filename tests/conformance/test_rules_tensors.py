"""Rules 26 to 48, 180 and 181: tensors, views, access patterns."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, INFERRED, UNKNOWN, also, rule
from tests.conformance.steps import counted, f32, in_hbm, kernel_of, on_chip, refused
from tests.isa.single import Out, run, same
from tests.isa.tiles import sbuf, store

VIEWS = "nki/test_tensor_views.py"
TENSOR = "nki/test_tensor.py"


@rule(26, DOCUMENTED, "A tensor is storage plus a strided view of at most 5 dimensions; views share it.",
      f"{VIEWS}::test_chains_of_views", "nki/test_tensor.py::test_refused_views")  # fmt: skip
def test_rule_026_views_share_storage():
    def body(t):
        nisa.memset(dst=t.reshape((4, 2, 4))[:, 1, :], value=0.0)
        return t

    x = counted(4, 8)
    found = nki.simulate(kernel_of(body))(x)
    x[:, 4:] = 0
    same(found, x)
    assert "5 dimensions" in str(refused(lambda t: t.reshape((4, 1, 2, 2, 2, 1))))


@rule(27, DOCUMENTED, "On chip an index keeps dimension 0 and drops a free one, never below two; HBM "
      "drops down to one.", f"{TENSOR}::test_documented_subscripts", f"{VIEWS}::test_chains_of_views")  # fmt: skip
def test_rule_027_indexing():
    x = counted(4, 4, 4)
    same(on_chip(lambda t: t[:, 0, 3], x), x[:, 0, 3:4])
    same(on_chip(lambda t: t[2, 1, 3], x), x[2:3, 1, 3:4])
    shapes = []
    in_hbm(lambda h: shapes.append(h[0, 1].shape) or h[0], x)
    assert shapes == [(4,)]


@rule(28, DOCUMENTED, "Ellipsis, missing dimensions, negative indices, start:stop:step and nl.ds work on "
      "any view.", f"{TENSOR}::test_documented_subscripts")  # fmt: skip
def test_rule_028_subscripts():
    x = counted(4, 6, 8)
    same(on_chip(lambda t: t[..., 1:7][:, -2], x), x[:, -2, 1:7])
    same(on_chip(lambda t: t[0:2][:, nl.ds(1, 4), ::3], x), x[0:2, 1:5, ::3])


@rule(29, DOCUMENTED, "Views compose; a reshape of what is two-dimensional already works.")
def test_rule_029_views_compose():
    x = counted(4, 6, 8)
    same(on_chip(lambda t: t[:, 2, :].reshape((4, 8))[:, 2:6][:, 1:3], x), x[:, 2, 3:5])


@rule(30, DOCUMENTED, "permute, reshape, expand, squeeze, flatten, broadcast keep dimension 0 on chip; "
      "nothing is copied.", f"{TENSOR}::test_refused_views",
      f"{TENSOR}::test_allowed_where_the_partition_rule_does_not_bind", f"{VIEWS}::test_chains_of_views")  # fmt: skip
def test_rule_030_reshaping():
    x = counted(4, 6)
    same(
        on_chip(lambda t: t.reshape_dim(1, (2, -1)).permute((0, 2, 1)), x),
        x.reshape(4, 2, 3).transpose(0, 2, 1),
    )
    same(in_hbm(lambda h: h.reshape((6, 4)), x), x.reshape(6, 4))
    assert "partition dimension" in str(refused(lambda t: t.permute((1, 0))))
    assert isinstance(refused(lambda t: t.reshape((4, 9))), errors.ShapeError)
    assert isinstance(
        refused(lambda t: t[:, 0:6].reshape((4, 2, 3)).permute((0, 2, 1)).reshape((4, 6))), ValueError
    )


@rule(31, DOCUMENTED, "broadcast repeats a dimension of size 1 with stride 0; strides of size-1 "
      "dimensions mean nothing.", f"{VIEWS}::test_contiguity_ignores_partitions_and_sizes_of_one")  # fmt: skip
def test_rule_031_broadcast():
    x = counted(3, 1, 2)
    same(on_chip(lambda t: t.broadcast(1, 4), x), np.broadcast_to(x, (3, 4, 2)))


@rule(32, DOCUMENTED, "view(dtype) rescales a contiguous last dimension; reinterpret_cast is its alias; "
      "x4 types have 4, 4, 2 bytes.", f"{VIEWS}::test_view_reinterprets_bytes",
      f"{TENSOR}::test_refused_views")  # fmt: skip
def test_rule_032_view_as_another_type():
    x = counted(2, 4)
    same(on_chip(lambda t: t.view(nl.uint16), x), x.view(np.uint16))
    same(on_chip(lambda t: t.reinterpret_cast(nl.uint8)[:, 4:8].view(nl.float32), x), x[:, 1:2])
    assert [d.itemsize for d in (nl.float8_e4m3fn_x4, nl.float8_e5m2_x4, nl.float4_e2m1fn_x4)] == [4, 4, 2]


@rule(33, UNKNOWN, "ap addresses the storage: the view's shape is ignored, an integer offset is absolute, "
      "None inherits.", f"{VIEWS}::test_access_patterns")  # fmt: skip
def test_rule_033_patterns_address_the_storage():
    x = counted(2, 8)
    pattern = [[8, 2], [1, 2]]
    same(on_chip(lambda t: t[:, 4:6].ap(pattern, offset=1), x), x[:, 1:3])
    same(on_chip(lambda t: t[:, 4:6].ap(pattern), x), x[:, 4:6])
    same(on_chip(lambda t: t.ap([[8, 2], [2, 4]]).ap(pattern), x), x[:, 0:2])


@rule(34, DOCUMENTED, "Patterns run from slowest to fastest; counts are the shape; stride 0 repeats; "
      "tuples serve as lists.", f"{VIEWS}::test_access_patterns")  # fmt: skip
def test_rule_034_order_of_patterns():
    x = counted(2, 8)
    same(on_chip(lambda t: t.ap(((8, 2), (0, 3), (2, 2))), x), np.repeat(x[:, None, 0:4:2], 3, axis=1))


@rule(35, DOCUMENTED, "The first pair of an on-chip pattern steps by one partition; the step is free if "
      "the count is 1.", "nki/test_tensor.py::test_refused_views",
      "isa/test_tensor_copy.py::test_skipping_partitions_is_refused")  # fmt: skip
def test_rule_035_partition_step():
    x = counted(4, 8)
    same(on_chip(lambda t: t.ap([[0, 1], [1, 3]]), x), x[0:1, 0:3])
    assert "partition step is 16" in str(refused(lambda t: t.ap([[16, 2], [1, 8]])))
    column = counted(4, 1)
    same(on_chip(lambda t: t.ap([[1, 4], [1, 1]]), column), column)


@rule(36, INFERRED, "A destination may repeat elements (stride 0); the last write stays.",
      "interpreter/test_bind.py::test_last_write_to_a_repeated_destination_wins",
      "isa/test_activation_reduce.py::test_rule_36_elementwise_result_thrown_away")  # fmt: skip
def test_rule_036_repeated_destinations():
    def body(t):
        kept = sbuf((4, 1))
        nisa.tensor_copy(dst=kept.ap([[1, 4], [0, 8]]), src=t)
        return kept

    x = counted(4, 8)
    same(nki.simulate(kernel_of(body))(x), x[:, 7:8])


@rule(37, DOCUMENTED, "Access hardware: up to 4 free dimensions, uint16 counts, int16 steps.",
      "nki/test_target.py::test_every_number_says_how_it_is_known_and_where_it_is_written",
      open="recorded in the target; tensors may have 4 free dimensions, and larger steps are not refused")  # fmt: skip
def test_rule_037_access_hardware():
    from nki.target import get_target

    for name in ("trn1", "trn2", "trn3"):
        target = get_target(name)
        assert (target.access_free_dims, target.instruction_free_dims) == (4, 3)
        assert (target.access_count_max, target.access_step_max) == (65535, 32767)
    x = counted(2, 2, 2, 2, 2)
    same(on_chip(lambda t: t.permute((0, 4, 3, 2, 1)), x), x.transpose(0, 4, 3, 2, 1))


@rule(45, DOCUMENTED, "Operands agree in partitions and elements per partition, not in rank; dma_copy in "
      "total count only.", "isa/test_tensor_copy_predicated.py::test_rule_45_ranks_may_differ",
      "isa/test_select_reduce.py::test_rule_45_ranks_may_differ",
      "isa/test_dma_copy.py::test_rule_45_counts_agree")  # fmt: skip
def test_rule_045_ranks_may_differ():
    x = counted(2, 2, 3)
    same(run(nisa.tensor_copy, dst=Out((2, 6)), src=x), x.reshape(2, 6))
    with pytest.raises(errors.OperandShapeError):
        run(nisa.tensor_copy, dst=Out((2, 5)), src=x)


@rule(46, DOCUMENTED, "An operand may alias dst: all is read before anything is written, and reduce_res "
      "is written last.", "isa/test_tensor_tensor.py::test_in_place_with_overlap",
      "public_cases/test_selection.py::test_pc_37_a_sum_inside_the_destination",
      "interpreter/test_bind.py::test_outputs_are_stored_in_order")  # fmt: skip
def test_rule_046_aliasing():
    def body(t):
        nisa.tensor_copy(dst=t[:, 1:8], src=t[:, 0:7])
        return t

    x = counted(4, 8)
    found = nki.simulate(kernel_of(body))(x)
    same(found[:, 1:], x[:, :-1])


@rule(47, DOCUMENTED, "A fresh tensor is uninitialised: reading it is an error, or NaN (floats) and 4 "
      "(integers) if one insists.", "nki/test_eager.py::test_unwritten_memory_is_poisoned_alike",
      "passes/test_initialised.py::test_the_missing_region_is_named",
      "public_cases/test_memory.py::test_pc_17_a_column_that_was_never_written")  # fmt: skip
@pytest.mark.parametrize(("dtype", "fill"), [(nl.float32, np.nan), (nl.bfloat16, np.nan), (nl.int32, 4)])
def test_rule_047_uninitialised(dtype, fill):
    kernel = kernel_of(lambda t: sbuf((2, 2), dtype))
    with pytest.raises(errors.UninitializedReadError):
        nki.simulate(kernel)(np.ones((1, 1), f32))
    found = nki.simulate(kernel, sanitize=False)(np.ones((1, 1), f32))
    np.testing.assert_array_equal(found.astype(f32), np.full((2, 2), fill, f32))


@rule(48, UNKNOWN, "address=(partition, bytes): the free offset counts bytes (one example counts "
      "elements); PSUM starts at a bank.", "language/test_creation.py::test_refused",
      "public_cases/test_memory.py::test_addresses_that_only_touch_are_no_overlap")  # fmt: skip
def test_rule_048_addresses():
    @nki.jit
    def kernel(x):
        a = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        nisa.dma_copy(dst=a, src=x)
        b = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.sbuf, address=(0, 8))
        nisa.memset(dst=b, value=7.0)
        return store(b)

    program = kernel.ir(counted(2, 4), target="trn2")
    assert [b.address for b in program.buffers if b.memory is nl.sbuf] == [(0, 0), (0, 8)]
    with pytest.raises(errors.NkiError, match="bank"):
        run(lambda dst: nl.ndarray((2, 2), nl.float32, nl.psum, address=(0, 4)), dst=Out((1, 1)))


@also(48)
def test_rule_048_overlapping_addresses_share_bytes():
    def body(t):
        a = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, 64))
        b = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.sbuf, address=(0, 80))
        nisa.tensor_copy(dst=a, src=t)
        nisa.memset(dst=b, value=-1.0)
        return b

    assert nki.simulate(kernel_of(body))(counted(4, 8)).tolist() == [[-1.0] * 4] * 4
