"""Rules 1 to 25: dtypes, conversion, arithmetic. `test_rules_operands.py` has rules 176 to 179."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.dtypes import as_dtype
from tests.conformance.registry import DOCUMENTED, INFERRED, UNKNOWN, also, covered, rule
from tests.isa.single import Out, Psum, bf16, f32, run, same
from tests.language.run import run as run_nl

MINUS = float(np.finfo(f32).min)


@rule(1, DOCUMENTED, "A dtype is a string: compared by name, usable as a dict key, made from NumPy and "
      "ml_dtypes types.", "nki/test_dtypes.py::test_a_dtype_is_its_name",
      "nki/test_dtypes.py::test_as_dtype_of_other_spellings")  # fmt: skip
def test_rule_001_dtypes_are_names():
    assert nl.bfloat16 == "bfloat16" and str(nl.bfloat16) == "bfloat16" and {nl.int8: 1}["int8"] == 1
    assert as_dtype(np.float32) == nl.float32 and as_dtype("float8e4") == nl.float8_e4m3
    with pytest.raises(TypeError, match="float64"):
        as_dtype(np.float64)


@rule(2, DOCUMENTED, "Arithmetic widens each input to float32, computes there and rounds once into dst.",
      "isa/test_tensor_tensor.py::test_bfloat16_is_computed_in_float32",
      "isa/test_tensor_scalar.py::test_between_operators_it_stays_float32")  # fmt: skip
def test_rule_002_float32_inside_one_rounding():
    x = np.array([[256.0]], bf16)
    found = run(nisa.tensor_scalar, dst=Out((1, 1), nl.bfloat16), data=x, op0=nl.add, operand0=1.0,
                op1=nl.subtract, operand1=256.0)  # fmt: skip
    same(found, np.array([[1.0]], bf16))


@rule(3, DOCUMENTED, "float32 to integer rounds to nearest, ties to even, and saturates.",
      "nki/test_dtype_conversion.py::test_rule_3_floats_round_to_even_and_saturate",
      "public_cases/test_casts.py::test_pc_01_ties_go_to_the_even_integer", open="NaN becomes 0")  # fmt: skip
def test_rule_003_to_integers():
    x = np.array([[0.5, 1.5, -2.5, 200.0, -200.0, np.nan]], f32)
    same(
        run(nisa.tensor_copy, dst=Out((1, 6), nl.int8), src=x), np.array([[0, 2, -2, 127, -128, 0]], np.int8)
    )


@rule(4, DOCUMENTED, "Copying x/y - 0.5 to int32 gives floor(x/y), but k - 1 for an exact odd quotient k.")
def test_rule_004_floor_by_rounding():
    def quotient(dst, data):
        scaled = nl.ndarray(data.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=scaled, data=data, op0=nl.multiply, operand0=0.25, op1=nl.subtract, operand1=0.5
        )
        nisa.tensor_copy(dst=dst, src=scaled)

    x = np.array([[1, 2, 3, 5, 6, 7, 9, 11]], f32)
    same(run(quotient, dst=Out((1, 8), nl.int32), data=x), (x // 4).astype(np.int32))
    exact = run(quotient, dst=Out((1, 3), nl.int32), data=np.array([[4, 8, 12]], f32))
    same(exact, np.array([[0, 2, 2]], np.int32))


@rule(5, DOCUMENTED, "Narrow floats round to nearest even.",
      "nki/test_dtype_conversion.py::test_rounding_is_to_nearest_even",
      "isa/test_tensor_copy.py::test_narrowing_is_one_rounding",
      open="stochastic rounding, which a run-time switch of the device selects, is not modelled")  # fmt: skip
def test_rule_005_nearest_even():
    x = np.array([[1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20]], f32)
    same(
        run(nisa.tensor_copy, dst=Out((1, 3), nl.bfloat16), src=x),
        np.array([[1, 1 + 2**-6, 1 + 2**-7]], bf16),
    )


@rule(6, UNKNOWN, "Overflow of a narrow float gives inf (bfloat16, float16, float8_e4m3, float8_e5m2) or "
      "NaN (float8_e4m3fn, which has no inf).",
      "nki/test_dtype_conversion.py::test_overflow_of_narrow_floats",
      "isa/test_range_select.py::test_rules_6_76_177_narrow_results")  # fmt: skip
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (nl.bfloat16, -np.inf),
        (nl.float16, -np.inf),
        (nl.float8_e5m2, -np.inf),
        (nl.float8_e4m3, -np.inf),
        (nl.float8_e4m3fn, np.nan),
    ],
)
def test_rule_006_overflow(dtype, expected):
    found = run(nisa.tensor_copy, dst=Out((1, 1), dtype), src=np.array([[MINUS]], f32))
    np.testing.assert_array_equal(found.astype(f32), [[expected]])


@rule(7, DOCUMENTED, "float8_e4m3 (inf, largest 240) and float8_e4m3fn (no inf, largest 448) are two "
      "types that do not meet in one matmul; the latter multiplies on trn3 only.",
      "isa/test_nc_matmul__dtypes.py::test_rule_7_two_flavours_of_e4m3",
      "isa/test_nc_matmul__dtypes.py::test_rule_7_e4m3fn_from_trn3",
      "public_cases/test_matmul.py::test_pc_65_the_two_flavours_of_e4m3_do_not_meet",
      open="arguments of the OCP type stay what they are on every generation")  # fmt: skip
def test_rule_007_two_e4m3():
    x = np.array([[240.0, 448.0, 300.0]], f32)
    legacy = run(nisa.tensor_copy, dst=Out((1, 3), nl.float8_e4m3), src=x).astype(f32)
    ocp = run(nisa.tensor_copy, dst=Out((1, 3), nl.float8_e4m3fn), src=x).astype(f32)
    assert legacy.tolist() == [[240, np.inf, np.inf]] and ocp.tolist() == [[240, 448, 288]]


@rule(8, DOCUMENTED, "bool_ is one byte, and bool outputs come back as bool.",
      "nki/test_dtype_conversion.py::test_rule_8_anything_but_zero_is_true")  # fmt: skip
def test_rule_008_bool():
    found = run(nisa.tensor_copy, dst=Out((1, 3), nl.bool_), src=np.array([[0, 2, -1]], f32))
    assert found.dtype == np.bool_ and found.tolist() == [[False, True, True]] and nl.bool_.itemsize == 1


@rule(9, DOCUMENTED, "Bit operators take integers and act on the raw bits; right_shift is logical.",
      "isa/test_tensor_tensor.py::test_right_shift_is_logical",
      "isa/test_alu.py::test_rule_9_bit_operators_act_on_patterns",
      open="shift counts of the width or more, operands of different widths")  # fmt: skip
def test_rule_009_bits():
    x = np.array([[-8, 7]], np.int32)
    found = run(nisa.tensor_scalar, dst=Out((1, 2), nl.int32), data=x, op0=nl.right_shift, operand0=1)
    same(found, np.array([[0x7FFFFFFC, 3]], np.int32))
    with pytest.raises(errors.NkiValidationError, match="integer"):
        run(nisa.tensor_scalar, dst=Out((1, 2)), data=x.astype(f32), op0=nl.bitwise_and, operand0=1)


@rule(10, DOCUMENTED, "Both operators of a tensor_scalar are arithmetic, or both work on bits.",
      "isa/test_tensor_scalar.py::test_bit_operator_faults")  # fmt: skip
def test_rule_010_one_class():
    with pytest.raises(errors.OperatorError, match="arithmetic"):
        run(nisa.tensor_scalar, dst=Out((1, 1), nl.int32), data=np.ones((1, 1), np.int32),
            op0=nl.bitwise_and, operand0=1, op1=nl.add, operand1=1)  # fmt: skip


@rule(11, DOCUMENTED, "Comparisons give 1.0 or 0.0, then converted to the type of dst; logical operators "
      "expect 0 and 1.", "isa/test_tensor_tensor.py::test_arithmetic",
      "isa/test_alu.py::test_binary_arithmetic", open="logical operators take any nonzero number as true")  # fmt: skip
def test_rule_011_comparisons():
    x = np.array([[1, 2, 3]], f32)
    for dtype in (f32, bf16, np.uint8, np.int32):
        found = run(nisa.tensor_scalar, dst=Out((1, 3), dtype), data=x, op0=nl.less_equal, operand0=2.0)
        same(found, np.array([[1, 1, 0]], dtype))


@rule(12, DOCUMENTED, "Reductions: add, subtract, multiply, maximum, minimum, and/or/xor of bits and of "
      "truth values.", "isa/test_tensor_reduce.py::test_operators",
      "isa/test_alu.py::test_rule_12_reduction_operators")  # fmt: skip
def test_rule_012_reductions():
    x = np.array([[3, 5, 2]], f32)
    for op, expected in (
        (nl.add, 10),
        (nl.multiply, 30),
        (nl.maximum, 5),
        (nl.minimum, 2),
        (nl.subtract, -4),
    ):
        same(run(nisa.tensor_reduce, dst=Out((1, 1)), op=op, data=x, axis=1), np.array([[expected]], f32))
    with pytest.raises(errors.OperatorError, match="divide"):
        run(nisa.tensor_reduce, dst=Out((1, 1)), op=nl.divide, data=x, axis=1)


@rule(13, DOCUMENTED, "tensor_tensor of int32/uint32 in SBUF is exact on GpSimd; on Vector or with PSUM "
      "it is float32.", "isa/test_tensor_tensor.py::test_int32_is_exact_and_wraps",
      "isa/test_tensor_tensor.py::test_int32_on_vector_or_from_psum_is_float32",
      open="overflow wraps, int32 and uint32 mix by value, only add, subtract and multiply have the "
           "integer form")  # fmt: skip
def test_rule_013_integer_arithmetic():
    x = np.array([[16777217]], np.int32)
    call = {"dst": Out((1, 1), nl.int32), "data2": np.array([[2]], np.int32), "op": nl.add}
    assert run(nisa.tensor_tensor, data1=x, **call)[0, 0] == 16777219
    assert run(nisa.tensor_tensor, data1=x, engine=nisa.engine.vector, **call)[0, 0] == 16777218
    assert run(nisa.tensor_tensor, data1=Psum(x), **call)[0, 0] == 16777218


@rule(14, DOCUMENTED, "tensor_scalar computes in float32; integer data with an integer number is exact "
      "address arithmetic.", "isa/test_tensor_scalar.py::test_integers_are_exact",
      "isa/test_tensor_scalar.py::test_a_float_operand_means_float32",
      open="what selects the exact form: integer data, dst and operands")  # fmt: skip
def test_rule_014_addresses():
    x = np.array([[16777217]], np.int32)
    found = run(nisa.tensor_scalar, dst=Out((1, 1), nl.int32), data=x, op0=nl.add, operand0=-1)
    same(found, np.array([[16777216]], np.int32))


@rule(15, DOCUMENTED, "tensor_copy of equal dtypes keeps the bits; the Scalar engine of trn1 cannot run "
      "it, GpSimd has no PSUM.", "isa/test_tensor_copy.py::test_equal_types_copy_bits",
      "isa/test_tensor_copy.py::test_trn1_scalar_engine_cannot",
      "isa/test_tensor_copy.py::test_gpsimd_reaches_no_psum")  # fmt: skip
@pytest.mark.parametrize("engine", ["vector", "gpsimd", "scalar"])
def test_rule_015_copies_keep_bits(engine):
    x = np.array([[0x7FC00001, 0x80000000, 0x7F800001]], np.uint32).view(f32)
    found = run(nisa.tensor_copy, target="trn2", dst=Out((1, 3)), src=x, engine=nisa.engine[engine])
    assert found.tobytes() == x.tobytes()


@rule(16, DOCUMENTED, "A DMA of equal dtypes copies bytes, others go through float32; hwdge converts "
      "nothing; MX types never.", "isa/test_dma_copy.py::test_rule_16_equal_dtypes_copy_bits",
      "isa/test_dma_copy.py::test_rule_16_packed_types", open="DMA casts to integers round as engines do")  # fmt: skip
def test_rule_016_dma():
    x = np.array([[16777217, -3]], np.int32)
    same(run(nisa.dma_copy, dst=Out((1, 2), nl.int32), src=x), x)
    same(run(nisa.dma_copy, dst=Out((1, 2)), src=x), x.astype(f32))
    with pytest.raises(errors.NkiValidationError, match="hwdge"):
        run(nisa.dma_copy, target="trn2", dst=Out((1, 2)), src=x, dge_mode=nisa.dge_mode.hwdge)


covered(17, DOCUMENTED, "Rows that a DMA skips keep their bits, integers included.",
        "isa/test_dma_copy__dynamic.py::test_rule_17_skip_with_a_cast_keeps_the_old_bits",
        "public_cases/test_bounds.py::test_pc_09_rows_out_of_bounds_are_skipped_bit_for_bit")  # fmt: skip


@rule(18, DOCUMENTED, "affine_select keeps bits if dtypes agree and fills a float32 constant; "
      "tensor_copy_predicated needs one dtype; select_reduce takes no tfloat32, int32, uint32.",
      "isa/test_affine_select.py::test_equal_types_keep_bits",
      "isa/test_tensor_copy_predicated.py::test_rule_18_dtypes_agree",
      "isa/test_select_reduce.py::test_rules_18_176_types_of_the_sides")  # fmt: skip
def test_rule_018_selects():
    with pytest.raises(errors.NkiValidationError, match="dtype"):
        run(nisa.tensor_copy_predicated, dst=Out((1, 2), fill=0), src=np.ones((1, 2), bf16),
            predicate=np.ones((1, 2), np.uint8))  # fmt: skip


@rule(19, DOCUMENTED, "abs_max and abs_min return the operand with its sign; y if the magnitudes are "
      "equal.", "isa/test_tensor_tensor.py::test_abs_max_keeps_the_sign",
      "language/test_binary.py::test_signed_operand_of_larger_magnitude")  # fmt: skip
def test_rule_019_abs_max():
    x, y = np.array([[-3, 2, -2]], f32), np.array([[1, -5, 2]], f32)
    same(
        run(nisa.tensor_tensor, dst=Out((1, 3)), data1=x, data2=y, op=nl.abs_max),
        np.array([[-3, -5, 2]], f32),
    )
    same(
        run(nisa.tensor_tensor, dst=Out((1, 3)), data1=x, data2=y, op=nl.abs_min), np.array([[1, 2, 2]], f32)
    )


@rule(20, DOCUMENTED, "nl.invert is xor with all ones, nl.logical_not xor with 1.",
      "language/test_unary.py::test_invert_and_logical_not")  # fmt: skip
def test_rule_020_invert():
    x = np.array([[0, 1, 6]], np.int32)
    same(run_nl(nl.invert, x), ~x)
    same(run_nl(nl.logical_not, x), x ^ 1)


@rule(21, DOCUMENTED, "Unary functions keep the dtype unless dtype= is given; comparisons keep the "
      "input's.", "language/test_binary.py::test_result_type_of_two_tiles",
      open="two operands of different dtypes promote")  # fmt: skip
def test_rule_021_result_types():
    x = np.ones((1, 2), bf16)
    assert run_nl(nl.exp, x).dtype == bf16 and run_nl(lambda t: nl.exp(t, dtype=nl.float32), x).dtype == f32
    assert run_nl(nl.equal, x, x).dtype == bf16 and run_nl(nl.add, x, x).dtype == bf16


covered(22, INFERRED, "Where operands differ: float beats int, two floats and two ints widen (the old "
        "namespace's table).", "language/test_binary.py::test_result_type_of_two_tiles",
        "language/test_binary.py::test_result_type_with_a_number")  # fmt: skip


@rule(23, DOCUMENTED, "tfloat32 has 10 mantissa bits in 32-bit storage; a float32 or tfloat32 matmul "
      "operand wants both so.", "isa/test_nc_matmul__dtypes.py::test_rules_23_184_float32_wants_float32",
      "nki/test_dtype_conversion.py::test_rule_23_tfloat32_keeps_ten_bits")  # fmt: skip
def test_rule_023_tfloat32():
    x = np.array([[1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11]], f32)
    found = run(nisa.tensor_copy, dst=Out((1, 3), nl.tfloat32), src=x)
    assert nl.tfloat32.itemsize == 4 and found.astype(f32).tolist() == [[1 + 2**-10, 1, 1 + 2**-9]]


@rule(24, DOCUMENTED, "memset: a float for an integer tile is an error, an integer for a float tile is "
      "fine, packed takes 0.", "isa/test_memset.py::test_no_float_for_integers",
      "isa/test_memset.py::test_bool_and_packed")  # fmt: skip
def test_rule_024_memset():
    same(run(nisa.memset, dst=Out((1, 2)), value=3), np.full((1, 2), 3, f32))
    for dtype, value in ((nl.int32, 1.0), (nl.float8_e4m3fn_x4, 1)):
        with pytest.raises(errors.NkiError):
            run(nisa.memset, dst=Out((1, 2), dtype), value=value)


@rule(25, DOCUMENTED, "nl.copy keeps the bits of equal dtypes and moves from PSUM.",
      "language/test_unary.py::test_copy_is_bit_exact_and_moves_from_psum")  # fmt: skip
def test_rule_025_copy():
    x = np.array([[16777217]], np.int32)
    same(run_nl(nl.copy, x, buffer=nl.psum), x)


@also(6)
def test_rule_006_agrees_with_ml_dtypes():
    x = np.array([[1e6, -1e6, 448, 449, 465, np.inf]], f32)
    for dtype in (ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16):
        with np.errstate(over="ignore"):
            expected = x.astype(dtype)
        found = run(nisa.tensor_copy, dst=Out((1, 6), dtype), src=x)
        np.testing.assert_array_equal(found.astype(f32), expected.astype(f32))
