"""Rules 58 to 69, 184 and 185: the Tensor engine and PSUM."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, UNKNOWN, also, covered, rule
from tests.conformance.steps import counted, f32, kernel_of, refused
from tests.isa.single import Out, bf16, diagnose, run, same
from tests.isa.tiles import load, psum, store
from tests.language.run import run as run_nl

MATMUL = "isa/test_nc_matmul.py"
LIMITS = "isa/test_nc_matmul__limits.py"
DTYPES = "isa/test_nc_matmul__dtypes.py"
TRANSPOSE = "isa/test_nc_transpose.py"


@rule(58, DOCUMENTED, "dst[M, N] = stationary[K, M].T @ moving[K, N]; K, M <= 128, N <= 512 (trn3 4096 or "
      "8192); free dimensions are flattened; before trn3 the output fits a PSUM bank.",
      f"{MATMUL}::test_rule_58_product", f"{MATMUL}::test_rule_58_free_dimensions_are_flattened",
      f"{LIMITS}::test_rule_58_moving_limit_on_trn3", f"{LIMITS}::test_rule_58_one_psum_bank",
      "public_cases/test_matmul.py::test_pc_25_free_dimensions_are_flattened")  # fmt: skip
def test_rule_058_product():
    a, b = counted(4, 3), counted(4, 2, 5)
    found = run(nisa.nc_matmul, dst=Out((3, 2, 5), psum=True), stationary=a, moving=b)
    same(found, np.einsum("km,kxy->mxy", a, b))
    for name, n in (("trn2", 513), ("trn3", 4097)):
        with pytest.raises(errors.NkiValidationError, match=str(n - 1)):
            run(
                nisa.nc_matmul,
                target=name,
                dst=Out((1, n), psum=True),
                stationary=a[:1, :1],
                moving=np.ones((1, n), f32),
            )


covered(59, DOCUMENTED, "dst is float32 before trn3, there also bfloat16, which is read, added to in "
        "float32 and rounded each time.", f"{DTYPES}::test_rule_59_float32_destination_before_trn3",
        f"{DTYPES}::test_rule_59_bfloat16_sums_are_rounded_each_time",
        "isa/test_nc_matmul_mx.py::test_rule_59_bfloat16_accumulates_with_a_rounding_each_time")  # fmt: skip

covered(60, DOCUMENTED, "accumulate: False overwrites, True adds (a fault on unwritten PSUM), None adds "
        "to what was written before.", f"{MATMUL}::test_rule_60_first_product_overwrites_later_ones_add",
        f"{MATMUL}::test_rule_60_false_overwrites",
        f"{MATMUL}::test_rule_60_true_on_unwritten_psum_is_reported",
        "public_cases/test_memory.py::test_pc_19_accumulation_onto_unwritten_psum")  # fmt: skip

covered(61, DOCUMENTED, "Whether an element was written counts by element: overlapping windows add where "
        "they overlap.", f"{MATMUL}::test_rule_61_overlapping_windows",
        "ir/test_groups.py::test_a_group_opens_with_the_first_write_and_is_kept_by_element")  # fmt: skip

covered(62, UNKNOWN, "With accumulate=None a product replaces what another engine wrote: zeros, then "
        "matmul, is the product; with True it adds, with a warning before trn3.",
        f"{MATMUL}::test_rule_62_zeros_then_product",
        f"{MATMUL}::test_rule_62_write_of_another_engine_ends_the_group",
        f"{MATMUL}::test_rule_60_true_after_memset_adds_and_warns")  # fmt: skip

covered(63, DOCUMENTED, "Reading PSUM does not end a group, a new tensor does.",
        f"{MATMUL}::test_rule_63_reading_does_not_end_the_group",
        "public_cases/test_matmul.py::test_the_second_group_in_a_new_tile_starts_at_zero")  # fmt: skip

covered(64, DOCUMENTED, "tile_size and tile_position come together, of 32, 64, 128 (32 from trn2); they "
        "change no value.", f"{LIMITS}::test_rule_64_tiles_of_the_array_change_no_value",
        f"{LIMITS}::test_rule_64_illegal_tiles", f"{LIMITS}::test_rule_64_tiles_of_32_rows_from_trn2",
        open="column tiling, which one sentence excludes, is accepted")  # fmt: skip

covered(65, DOCUMENTED, "double_row (fp8, trn2) contracts 2K: stationary [K, 2, M], moving [K, 2, N].",
        f"{DTYPES}::test_rule_65_double_row_contracts_both", f"{DTYPES}::test_rule_65_double_row_limits")  # fmt: skip

covered(66, DOCUMENTED, "is_transpose moves bits from trn2, 16-bit into 16-bit PSUM; on trn1 it "
        "multiplies.", f"{DTYPES}::test_rule_66_transpose_mode_moves_bits",
        f"{DTYPES}::test_rule_66_trn1_has_no_transpose_mode",
        f"{LIMITS}::test_rules_64_66_double_row_stands_alone", open="fp8 transposes keep their dtype")  # fmt: skip


@rule(67, DOCUMENTED, "nc_transpose keeps the dtype; Vector up to 32x32 anywhere, Tensor up to 128x128 "
      "from SBUF to PSUM; engine is obeyed.", f"{TRANSPOSE}::test_rule_67_destination_decides_the_engine",
      f"{TRANSPOSE}::test_rule_67_sizes", f"{TRANSPOSE}::test_rule_67_dtype_of_the_destination",
      f"{TRANSPOSE}::test_rule_67_vector_reads_and_writes_psum")  # fmt: skip
def test_rule_067_transpose():
    x = counted(32, 16)
    for engine, in_psum in (("vector", False), ("tensor", True)):
        same(run(nisa.nc_transpose, dst=Out((16, 32), psum=in_psum), data=x, engine=nisa.engine[engine]), x.T)
    with pytest.raises(errors.EngineError):
        run(nisa.nc_transpose, dst=Out((64, 64)), data=counted(64, 64), engine=nisa.engine.vector)


@rule(68, DOCUMENTED, "is_stationary_onezero and is_moving_onezero are hints; older names of them are "
      "gone.", f"{DTYPES}::test_rule_68_hints_change_no_value",
      f"{LIMITS}::test_cost_hints_halve_float32_only")  # fmt: skip
def test_rule_068_hints():
    x = counted(4, 4)
    call = {"dst": Out((4, 4), psum=True), "stationary": x, "moving": x}
    same(run(nisa.nc_matmul, is_moving_onezero=True, **call), x.T @ x)
    for old in ("psumAccumulateFlag", "is_moving_zero"):
        with pytest.raises(TypeError, match=old):
            run(nisa.nc_matmul, **call, **{old: True})


@rule(69, DOCUMENTED, "nl.matmul writes PSUM; only transpose_x=True works on hardware, the other form "
      "transposes first.", "language/test_linear.py::test_matmul",
      "language/test_linear.py::test_matmul_of_transposed_x_is_one_instruction")  # fmt: skip
def test_rule_069_nl_matmul():
    a, b = counted(4, 3), counted(4, 5)
    same(run_nl(lambda x, y: nl.matmul(x, y, transpose_x=True), a, b), a.T @ b)
    same(run_nl(nl.matmul, a.T.copy(), b), a.T @ b)


@rule(184, DOCUMENTED, "float32 and tfloat32 mix with each other only, 16-bit and fp8 types with any; no "
      "integers; sums are float32.", f"{DTYPES}::test_rule_184_narrow_types_mix",
      f"{DTYPES}::test_rule_184_no_integers",
      "public_cases/test_matmul.py::test_float32_does_not_mix_with_bfloat16",
      open="float32 products are exact float32 products, where hardware takes several passes")  # fmt: skip
def test_rule_184_types_of_products():
    x = counted(4, 4)
    found = run(
        nisa.nc_matmul, dst=Out((4, 4), psum=True), stationary=x.astype(bf16), moving=x.astype(np.float16)
    )
    same(found, x.T @ x)
    same(run(nisa.nc_transpose, dst=Out((4, 4), nl.int32), data=x.astype(np.int32)), x.T.astype(np.int32))


@rule(185, UNKNOWN, "Positions of tiles in the array are not tied to the start partitions of the operands.")
def test_rule_185_positions_of_tiles():
    x = counted(32, 8)
    for row in (0, 64, 96):
        found = run(nisa.nc_matmul, target="trn2", dst=Out((8, 8), psum=True), stationary=x, moving=x,
                    tile_size=(32, 128), tile_position=(row, 0))  # fmt: skip
        same(found, x.T @ x)


@also(61)
def test_rule_061_convolution_pattern():
    """Windows of three columns slide by one: columns that overlap add up, fresh ones start."""

    @nki.jit
    def kernel(x):
        t, p = load(x), psum((1, 6))
        for first in range(4):
            nisa.nc_matmul(dst=p[:, first : first + 3], stationary=t[:, 0:1], moving=t[:, 0:3])
        return store(p)

    x = np.ones((1, 3), f32)
    same(nki.simulate(kernel, target="trn2")(x), np.array([[1, 2, 3, 3, 2, 1]], f32))


@also(62)
def test_rule_062_nonzero_memset_is_replaced():
    def body(t):
        p = psum((8, 8))
        nisa.memset(dst=p, value=100.0)
        nisa.nc_matmul(dst=p, stationary=t, moving=t)
        return p

    x = counted(4, 8)
    same(nki.simulate(kernel_of(body), target="trn2")(x), x.T @ x)


@also(60)
def test_rule_060_transposes_do_not_accumulate():
    assert "accumulate" not in nisa.nc_transpose.__signature__.parameters
    error = refused(lambda t: nisa.nc_transpose(dst=psum((8, 4)), data=t, accumulate=True))
    assert isinstance(error, errors.UnknownKeywordError)


@also(59)
def test_rule_059_float32_only_before_trn3():
    def body(t):
        p = psum((8, 8), nl.bfloat16)
        nisa.nc_matmul(dst=p, stationary=t, moving=t)
        return p

    x = counted(4, 8).astype(bf16)
    assert "bfloat16" in str(refused(body, x, target="trn2"))
    assert nki.simulate(kernel_of(body), target="trn3")(x).dtype == bf16


@also(185)
def test_rule_185_no_finding():
    x = counted(32, 8)
    call = {"dst": Out((8, 8), psum=True), "stationary": x, "moving": x}
    assert diagnose(nisa.nc_matmul, target="trn2", tile_size=(32, 128), tile_position=(96, 0), **call) == []
