"""Rules 115 to 123: microscaling and random numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, INFERRED, UNKNOWN, also, covered, rule
from tests.conformance.steps import f32, on_chip
from tests.isa.single import Out, run, same
from tests.language.run import run as run_nl

QUANTIZE = "isa/test_quantize_mx.py"
MATMUL = "isa/test_nc_matmul_mx.py"


@rule(115, DOCUMENTED, "An x4 element holds four lanes along the free dimension, lane 0 lowest; fp4 packs "
      "are 16 bits; quantize_mx has no fp4.", f"{MATMUL}::test_rule_115_every_code_in_every_lane",
      f"{QUANTIZE}::test_rules_115_to_118", f"{QUANTIZE}::test_refused")  # fmt: skip
def test_rule_115_packing():
    codes = np.arange(16, dtype=np.uint8).reshape(2, 8)
    packed = on_chip(lambda t: t.view(nl.float8_e4m3fn_x4), codes, target="trn3")
    assert packed.shape == (2, 2) and packed.tobytes() == codes.tobytes()
    assert packed.view(np.uint32)[0, 0] == 0x03020100


covered(116, DOCUMENTED, "A scale serves 8 partitions by 4 lanes; the scales of a quadrant lie in its "
        "rows 0..3, or at 4, 8, 12.", f"{QUANTIZE}::test_rule_116_scales_of_one_quadrant",
        f"{QUANTIZE}::test_rule_116_offsets_leave_the_neighbours_alone",
        f"{QUANTIZE}::test_rule_116_other_offsets_are_refused", f"{MATMUL}::test_rule_116_small_scale_tiles",
        f"{MATMUL}::test_rule_116_scales_at_offsets_and_with_more_columns")  # fmt: skip


@rule(117, DOCUMENTED, "Scale byte e means 2^(e - 127), 255 is NaN; uint8 or float8_e8m0fnu.",
      f"{MATMUL}::test_rule_117_every_scale")  # fmt: skip
def test_rule_117_scale_bytes():
    codes = np.array([[0, 126, 127, 254, 255]], np.uint8).view(ml_dtypes.float8_e8m0fnu)
    found = run(nisa.tensor_copy, dst=Out((1, 5)), src=codes)
    np.testing.assert_array_equal(found, np.array([[2.0**-127, 0.5, 1, 2.0**127, np.nan]], f32))


covered(118, DOCUMENTED, "The scale is 2^(floor(log2 amax) - (Emax - 1)), Emax 8 or 15: twice the OCP "
        "sample; amax 0 gives 2^-127.", f"{QUANTIZE}::test_documented_scale_by_hand",
        f"{QUANTIZE}::test_rule_118_nothing_is_clamped",
        f"{QUANTIZE}::test_rule_118_zeros_and_the_smallest_scale",
        "public_cases/test_matmul.py::test_pc_63_the_scale_of_a_block_is_the_doubled_one",
        "public_cases/test_matmul.py::test_the_top_of_a_block_is_never_clamped")  # fmt: skip

covered(119, DOCUMENTED, "nc_matmul_mx sums over partitions and lanes in float32, into float32 or "
        "bfloat16; fp8 and fp4 mix; K in 32s.", f"{MATMUL}::test_rule_119_all_pairs_of_types",
        f"{MATMUL}::test_rule_119_partitions", f"{MATMUL}::test_rule_119_bfloat16",
        f"{MATMUL}::test_rule_119_free_size_of_moving", f"{MATMUL}::test_rule_119_row_tiles_change_nothing",
        f"{MATMUL}::test_refused")  # fmt: skip


@rule(120, INFERRED, "MX data comes as uint8, uint16 or uint32 and is viewed in the kernel.",
      f"{MATMUL}::test_by_hand")  # fmt: skip
@pytest.mark.parametrize(
    ("source", "packed"),
    [(np.uint8, nl.float8_e4m3fn_x4), (np.uint32, nl.float8_e5m2_x4), (np.uint16, nl.float4_e2m1fn_x4)],
)
def test_rule_120_views_of_host_data(source, packed):
    x = np.arange(64, dtype=np.uint8).reshape(2, 32).view(source)
    assert on_chip(lambda t: t.view(packed), x, target="trn3").tobytes() == x.tobytes()


@rule(121, UNKNOWN, "rng fills integers with the low bits of 32-bit words; a seed fixes the Vector "
      "stream; LFSR before trn3, XORWOW there.", "isa/test_rng.py::test_rule_121_shift_register_before_trn3",
      "isa/test_rng.py::test_rule_121_four_xorwow_generators_on_trn3",
      "isa/test_rng.py::test_rule_121_low_bits",
      "isa/test_set_rng_seed.py::test_rule_121_same_seed_same_stream",
      "isa/test_rand_get_state.py::test_rule_121_state_before_and_after",
      "isa/test_rand_set_state.py::test_rule_121_saved_and_restored")  # fmt: skip
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_rule_121_streams(target):
    def seeded(dst, seed):
        nisa.set_rng_seed(src_seeds=seed)
        nisa.rng(dst=dst)

    first, again, other = (
        run(seeded, target=target, dst=Out((4, 64), nl.uint32), seed=np.array([[seed]], np.int32))
        for seed in (1, 1, 2)
    )
    same(first, again)
    assert (first != other).mean() > 0.9


@rule(122, DOCUMENTED, "dropout's prob is that of dropping, a number or a column; kept values are not "
      "scaled; 1 drops all, 0 none.", "isa/test_dropout.py::test_rule_122_ends",
      "isa/test_dropout.py::test_rule_122_share_and_no_scaling",
      "isa/test_dropout.py::test_rule_122_beyond_one_drops_all",
      open="beyond 1 everything is dropped, with a warning")  # fmt: skip
def test_rule_122_dropout():
    x = np.full((4, 256), 3, f32)
    assert set(np.unique(run(nisa.dropout, dst=Out((4, 256)), data=x, prob=0.5))) == {0, 3}
    same(run(nisa.dropout, dst=Out((4, 256)), data=x, prob=0.0), x)
    same(run(nisa.dropout, dst=Out((4, 256)), data=x, prob=1.0), 0 * x)


@rule(123, DOCUMENTED, "nl.rand is in [0, 1), by rand2 on trn3 and rng elsewhere; random_seed takes a (1, "
      "1) tensor.", "language/test_random_numbers.py::test_rule_123_uniform_in_zero_to_one",
      "language/test_random_numbers.py::test_rule_123_one_is_never_reached_by_rounding",
      "language/test_random_numbers.py::test_rule_123_the_seed_is_a_tensor")  # fmt: skip
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_rule_123_rand(target):
    found = run_nl(lambda x: nl.rand((4, 256), dtype=nl.float32), np.zeros((1, 1), f32), target=target)
    assert (
        (found >= 0).all()
        and (found < 1).all()
        and abs(found.mean() - 0.5) < 0.05
        and len(np.unique(found)) > 900
    )


@also(123)
def test_rule_123_the_seed_is_one_element():
    with pytest.raises(errors.NkiError):
        run_nl(lambda x: nl.random_seed(x) or x, np.zeros((2, 2), np.int32))
