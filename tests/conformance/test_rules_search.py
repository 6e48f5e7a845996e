"""Rules 103 to 114 and 191: GpSimd instructions, the max8 family, movement across partitions."""

from __future__ import annotations

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, UNKNOWN, also, covered, rule
from tests.conformance.steps import counted, f32
from tests.isa.single import Out, diagnose, run, same
from tests.language.run import run as run_nl

SHUFFLE = "isa/test_nc_stream_shuffle.py"


@rule(103, DOCUMENTED, "iota and affine_select: offset + channel * channel_multiplier + pattern, int32, "
      "up to four levels, SBUF only.", "isa/test_iota.py::test_patterns",
      "isa/test_iota.py::test_partitions_count_from_the_tile", "isa/test_affine_select.py::test_patterns",
      "public_cases/test_selection.py::test_pc_31_a_causal_mask_keeps_the_diagonal",
      open="offsets in registers")  # fmt: skip
def test_rule_103_patterns():
    found = run(
        nisa.iota, dst=Out((2, 6), nl.int32), pattern=[[10, 2], [1, 3]], offset=5, channel_multiplier=100
    )
    expected = 5 + 100 * np.arange(2)[:, None] + np.array([0, 1, 2, 10, 11, 12])
    same(found, expected.astype(np.int32))
    x = counted(2, 3)
    found = run(
        nisa.affine_select,
        dst=Out((2, 3)),
        pattern=[[1, 3]],
        channel_multiplier=-1,
        on_true_tile=x,
        on_false_value=-1.0,
    )
    same(found, np.where(np.arange(3) - np.arange(2)[:, None] == 0, x, -1).astype(f32))


covered(104, DOCUMENTED, "local_gather: 16 partitions share a list read down the columns; entries are "
        "element offsets; runs in order.", "isa/test_local_gather.py::test_rule_104_groups_runs_and_dtypes",
        "isa/test_local_gather.py::test_rule_104_valid_indices_and_documented_shapes",
        "isa/test_local_gather.py::test_rule_104_into_a_part_of_a_tile")  # fmt: skip


@rule(105, DOCUMENTED, "nc_n_gather gathers per partition by uint32 indices in range; gather_flattened is "
      "its nl form.", "isa/test_nc_n_gather.py::test_rule_105_index_outside",
      "isa/test_nc_n_gather.py::test_gather_flattened")  # fmt: skip
def test_rule_105_gather():
    x, index = counted(2, 5), np.array([[4, 0, 4], [1, 2, 3]], np.uint32)
    same(
        run(nisa.nc_n_gather, dst=Out((2, 3)), data=x, indices=index),
        np.take_along_axis(x, index.astype(int), 1),
    )


@rule(106, DOCUMENTED, "sequence_bounds: start inclusive, end exclusive, of runs of equal ids; padding id "
      "0 gives (n, -1).", "isa/test_sequence_bounds.py::test_documented_example")  # fmt: skip
def test_rule_106_bounds():
    found = run(
        nisa.sequence_bounds, dst=Out((1, 2, 5), nl.int32), segment_ids=np.array([[7, 7, 3, 0, 3]], np.int32)
    )
    assert found.tolist() == [[[0, 0, 2, 5, 4], [2, 2, 3, -1, 5]]]


covered(107, DOCUMENTED, "nonzero_with_count touches partitions 0, 16, .. 112 only.",
        "isa/test_nonzero_with_count.py::test_rule_107_first_partition_of_each_core",
        "isa/test_nonzero_with_count.py::test_rule_107_other_partitions_are_neither_read_nor_written")  # fmt: skip

covered(108, UNKNOWN, "topk: element i at partition i % 16, column i // 16 of 16 partitions; ascending; "
        "all 16 hold the result.", "isa/test_topk.py::test_by_hand",
        "isa/test_topk.py::test_rule_108_groups_are_independent",
        "isa/test_topk.py::test_rule_108_ties_and_special_values")  # fmt: skip


@rule(109, DOCUMENTED, "max8: the eight largest as float32, descending, duplicates kept; 8 <= n <= 16384, "
      "up to three dimensions.", "isa/test_max8.py::test_rule_109_any_numbers",
      "isa/test_max8.py::test_rules_109_182_limits")  # fmt: skip
def test_rule_109_max8():
    x = np.array([[3, 9, 9, 1, 7, 2, 5, 4, 9]], f32)
    same(run(nisa.max8, dst=Out((1, 8)), src=x), np.array([[9, 9, 9, 7, 5, 4, 3, 2]], f32))


covered(110, DOCUMENTED, "nc_find_index8: first occurrence; repeated values walk on, ascending by slot; "
        "missing is all ones.", "isa/test_nc_find_index8.py::test_pc_27_missing_values_and_duplicates",
        "isa/test_nc_find_index8.py::test_rule_110_any_numbers",
        "public_cases/test_selection.py::test_pc_27_missing_values_and_duplicates")  # fmt: skip

covered(111, DOCUMENTED, "nc_match_replace8: slots 7 to 0 take the first match not yet used, so the "
        "earliest goes to the highest.", "isa/test_nc_match_replace8.py::test_rule_111_documented_example",
        "isa/test_nc_match_replace8.py::test_rule_111_missing_is_all_ones",
        "public_cases/test_selection.py::test_search_and_replace_go_opposite_ways",
        open="missing slots are all ones")  # fmt: skip

covered(112, DOCUMENTED, "The usual top-k loop: max8, nc_find_index8, nc_match_replace8 on one tile.",
        "isa/test_max8.py::test_rule_112_top_16_in_two_rounds",
        "public_cases/test_selection.py::test_top_sixteen_of_equal_values")  # fmt: skip

covered(113, DOCUMENTED, "nc_stream_shuffle: one mask of 32 per quadrant, 255 leaves the partition, in "
        "place allowed, one dtype.", f"{SHUFFLE}::test_rule_113_any_mask",
        f"{SHUFFLE}::test_rule_113_in_place_with_255", f"{SHUFFLE}::test_published_example_broadcast",
        f"{SHUFFLE}::test_rules_51_113_start_partitions",
        "public_cases/test_selection.py::test_pc_33_255_in_a_shuffle_leaves_the_row_alone")  # fmt: skip


@rule(114, DOCUMENTED, "Lane-wise engines may shift by whole quadrants: tensor_copy between t[0:32] and "
      "t[32:64] is legal.")  # fmt: skip
def test_rule_114_shift_by_a_quadrant():
    def shifted(dst, src):
        nisa.tensor_copy(dst=dst[32:64], src=src[0:32])

    x = counted(64, 2)
    same(run(shifted, dst=Out((64, 2), fill=0), src=x)[32:], x[:32])
    assert diagnose(shifted, dst=Out((64, 2), fill=0), src=x) == []


@rule(191, DOCUMENTED, "Only listed instructions move data across partitions; an on-chip operand neither "
      "repeats nor skips partitions.", "isa/test_tensor_copy.py::test_skipping_partitions_is_refused",
      "language/test_selection.py::test_broadcast_to_partitions")  # fmt: skip
def test_rule_191_across_partitions():
    x = counted(4, 2)
    for view in (lambda t: t[0:4:2], lambda t: t.ap([[0, 2], [1, 2]])):
        with pytest.raises(errors.NkiError):
            run(lambda dst, src, v=view: nisa.tensor_copy(dst=dst, src=v(src)), dst=Out((2, 2)), src=x)
    same(run_nl(lambda t: nl.broadcast_to(t, (4, 2)), x[0:1]), np.repeat(x[0:1], 4, axis=0))


@also(110)
def test_rule_110_missing_in_16_bits():
    x = np.arange(8, dtype=f32)[None]
    found = run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint16), data=x, vals=x + 4)
    assert found.tolist() == [[4, 5, 6, 7] + [0xFFFF] * 4]


@also(103)
def test_rule_103_five_levels_are_too_many():
    with pytest.raises(errors.NkiError, match=r"four|4"):
        run(nisa.iota, dst=Out((1, 1), nl.int32), pattern=[[1, 1]] * 5)
