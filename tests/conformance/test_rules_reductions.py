"""Rules 70 to 83 and 186 to 189: activations and their registers, the accumulators of Vector, reductions."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, INFERRED, also, covered, rule
from tests.conformance.steps import counted, f32, kernel_of
from tests.isa.single import Out, bf16, run, same
from tests.isa.tiles import load, sbuf, store
from tests.language.run import run as run_nl

ACTIVATION = "isa/test_activation.py"
REGISTERS = "isa/test_activation__registers.py"
REDUCE = "isa/test_tensor_scalar_reduce.py"
SCAN = "isa/test_tensor_tensor_scan.py"
CUMULATIVE = "isa/test_tensor_scalar_cumulative.py"
RANGE = "isa/test_range_select.py"
cmd = nisa.reduce_cmd

covered(70, DOCUMENTED, "activation = op(data * scale + bias); columns or numbers; a bias is one column, "
        "a number from trn2; no bias for reciprocal on trn1.",
        f"{ACTIVATION}::test_rule_70_scale_and_bias_columns", f"{ACTIVATION}::test_rule_70_numbers",
        f"{ACTIVATION}::test_rule_70_bias_is_one_column",
        f"{ACTIVATION}::test_rule_70_number_as_bias_from_trn2",
        f"{ACTIVATION}::test_rule_70_reciprocal_without_bias_on_trn1",
        "public_cases/test_selection.py::test_pc_35_copy_has_a_bias_too")  # fmt: skip

covered(71, DOCUMENTED, "reduce_cmd is idle by default: the registers keep what they hold.",
        f"{REGISTERS}::test_rules_71_72_75_chain",
        f"{ACTIVATION}::test_rule_71_reduction_that_reduces_nothing_is_reported",
        "public_cases/test_selection.py::test_registers_are_zeroed_only_on_command")  # fmt: skip

covered(72, DOCUMENTED, "reset zeroes, reset_reduce starts anew, reduce adds; registers persist and are "
        "shared by the activations.", f"{REGISTERS}::test_rule_72_reset_reduce",
        f"{REGISTERS}::test_rule_72_registers_belong_to_partitions",
        "isa/test_activate2.py::test_rules_72_75_registers_are_those_of_activation",
        open="abs_max and abs_min start from 0 and infinity")  # fmt: skip


@rule(73, INFERRED, "The row sum is accumulated once, though the published sketch adds it twice.",
      f"{REGISTERS}::test_rule_72_reset_reduce")  # fmt: skip
def test_rule_073_accumulated_once():
    _, total = run(nisa.activation, dst=Out((1, 4)), op=nl.copy, data=np.full((1, 4), 3, f32), reduce_op=nl.add,
                   reduce_res=Out((1, 1)), reduce_cmd=cmd.reset_reduce)  # fmt: skip
    assert total[0, 0] == 12


covered(74, DOCUMENTED, "The Vector engine's accumulators are shared by five instructions; idle may "
        "disturb them; identities by operator; only load_reduce takes a start value.",
        f"{REDUCE}::test_load_reduce", f"{REDUCE}::test_commands", f"{RANGE}::test_rules_74_75_chain",
        f"{CUMULATIVE}::test_rule_74_registers_are_shared", "isa/test_exponential.py::test_rule_74_commands",
        "isa/test_select_reduce.py::test_rule_74_commands_and_operator",
        open="idle leaves them as they are, with a warning if they are read later")  # fmt: skip

covered(75, DOCUMENTED, "Without reduce_res the value stays in the registers for the next call; "
        "reduce_res_negate negates what is written.", f"{REDUCE}::test_chain_through_the_registers",
        f"{REDUCE}::test_negate_leaves_the_registers",
        "isa/test_activation_reduce.py::test_rule_75_none_keeps_the_sum_in_the_registers")  # fmt: skip

covered(76, DOCUMENTED, "range_select: reset_reduce by default, maximum only, fill FP32_MIN only, five "
        "comparisons, float on_true.", f"{RANGE}::test_rule_76_comparisons",
        f"{RANGE}::test_rule_76_the_fill_is_fixed", f"{RANGE}::test_rule_76_operators",
        "public_cases/test_selection.py::test_pc_29_a_range_keeps_minus_infinity")  # fmt: skip

covered(77, DOCUMENTED, "range_select compares range_start + flattened position with its bounds in "
        "float32.", f"{RANGE}::test_rule_77_index_runs_over_all_free_axes",
        f"{RANGE}::test_rule_77_indices_are_float32")  # fmt: skip


@rule(78, DOCUMENTED, "tensor_reduce: axes are the tensor's own, the trailing ones, never the partitions; "
      "dst counts elements.", "isa/test_tensor_reduce.py::test_axes",
      "isa/test_tensor_reduce.py::test_wrong_axes", "isa/test_tensor_reduce.py::test_destination_must_fit")  # fmt: skip
def test_rule_078_axes():
    x = counted(2, 3, 4)
    same(run(nisa.tensor_reduce, dst=Out((2, 3)), op=nl.add, data=x, axis=2), x.sum(2))
    same(
        run(nisa.tensor_reduce, dst=Out((2, 1, 1)), op=nl.add, data=x, axis=(1, 2), keepdims=True),
        x.sum((1, 2), keepdims=True),
    )
    for axis in (0, 1, (0, 1, 2)):
        with pytest.raises(errors.NkiValidationError):
            run(nisa.tensor_reduce, dst=Out((2, 4)), op=nl.add, data=x, axis=axis)


covered(79, DOCUMENTED, "tensor_scalar_cumulative: out[i] = op1(op0(x[i], imm0), register), subtract in "
        "that order; no int32, uint32.", f"{CUMULATIVE}::test_worked_examples",
        f"{CUMULATIVE}::test_rule_79_bit_for_bit", f"{CUMULATIVE}::test_rule_79_dtypes")  # fmt: skip


@rule(80, DOCUMENTED, "tensor_tensor_scan: out[i] = op1(op0(data0[i], state), data1[i]), from `initial`; "
      "reverse0 and reverse1 swap.", f"{SCAN}::test_all_orders",
      f"{SCAN}::test_binary_arithmetic_operators_only", open="the state stays float32, whatever dst is")  # fmt: skip
def test_rule_080_scan():
    a, b = np.array([[2, 3, 4]], f32), np.array([[1, 1, 1]], f32)
    found = run(
        nisa.tensor_tensor_scan, dst=Out((1, 3)), data0=a, data1=b, initial=1.0, op0=nl.multiply, op1=nl.add
    )
    same(found, np.array([[3, 10, 41]], f32))


@rule(81, DOCUMENTED, "bn_stats: count, mean, variance * count of the even, then of the odd elements; "
      "bn_aggr merges to mean and variance.", "isa/test_bn_stats.py::test_rule_81_halves_by_parity",
      "isa/test_bn_aggr.py::test_published_example_of_several_tiles")  # fmt: skip
def test_rule_081_batch_norm():
    x = np.array([[1, 10, 3, 20, 5]], f32)
    stats = run(nisa.bn_stats, dst=Out((1, 6)), data=x)
    same(stats, np.array([[3, 3, 8, 2, 15, 50]], f32))
    np.testing.assert_allclose(
        run(nisa.bn_aggr, dst=Out((1, 2)), data=stats), [[x.mean(), x.var()]], rtol=1e-6
    )


@rule(82, DOCUMENTED, "nl.var keeps the axes, nl.mean computes in float32, reductions refuse axis 0.",
      "language/test_reductions.py::test_variance_always_keeps_the_axes",
      "language/test_reductions.py::test_refused_axes")  # fmt: skip
def test_rule_082_nl_reductions():
    x = counted(2, 4)
    assert run_nl(lambda t: nl.var(t, axis=1), x).shape == (2, 1)
    same(
        run_nl(lambda t: nl.mean(t, axis=1, keepdims=True), np.full((1, 3), 257, bf16)),
        np.array([[256]], bf16),
    )
    with pytest.raises(errors.NkiError, match=r"partition|axis"):
        run_nl(lambda t: nl.sum(t, axis=0), x)


@rule(83, DOCUMENTED, "tensor_partition_reduce: add, average, max, bitwise_or, bitwise_and; the result is "
      "on one partition.", "isa/test_tensor_partition_reduce.py::test_documented_example",
      "isa/test_tensor_partition_reduce.py::test_rule_9_bits")  # fmt: skip
def test_rule_083_across_partitions():
    x = counted(4, 3)
    for op, expected in ((nl.add, x.sum(0)), (nl.average, x.mean(0)), (nl.max, x.max(0))):
        same(run(nisa.tensor_partition_reduce, dst=Out((1, 3)), op=op, data=x), expected[None].astype(f32))
    with pytest.raises(errors.NkiError):
        run(nisa.tensor_partition_reduce, dst=Out((1, 3)), op=nl.multiply, data=x)


covered(186, DOCUMENTED, "activation sums only, over all free axes; reduce_res is a column; "
        "activation_reduce has no reduce_cmd and resets.",
        f"{REGISTERS}::test_rule_186_all_free_axes_are_reduced",
        f"{ACTIVATION}::test_rules_72_144_186_arguments",
        "isa/test_activation_reduce.py::test_rule_186_always_resets",
        "isa/test_activation_reduce.py::test_rule_186_sums_only")  # fmt: skip

covered(187, DOCUMENTED, "activate2 has six pairs of operators, mandatory immediates, swappable sides; "
        "relu_param feeds prelu.", "isa/test_activate2.py::test_rule_187_pairs_and_order",
        "isa/test_activate2.py::test_rule_187_other_pairs_are_refused",
        "isa/test_activate2.py::test_rule_187_immediates_are_mandatory",
        "isa/test_activate2.py::test_rule_187_prelu", "isa/test_activate2.py::test_rule_187_reductions")  # fmt: skip


@rule(188, DOCUMENTED, "tensor_reduce computes in float32 and casts once; negate multiplies by -1 and is "
      "refused for bit operators.", "isa/test_tensor_reduce.py::test_negate",
      "isa/test_tensor_reduce.py::test_sums_in_float32",
      "isa/test_tensor_reduce.py::test_bit_operator_faults", open="subtract is the first minus the rest")  # fmt: skip
def test_rule_188_one_cast():
    x = np.full((1, 3), 257, f32)
    found = run(nisa.tensor_reduce, dst=Out((1, 1), nl.bfloat16), op=nl.add, data=x, axis=1, negate=True)
    same(found, np.array([[-772]], bf16))
    with pytest.raises(errors.OperatorError, match="abs_max"):
        run(nisa.tensor_reduce, dst=Out((1, 1)), op=nl.abs_max, data=x, axis=1)


@rule(189, DOCUMENTED, "nl.maximum and nl.max (nl.minimum, nl.min) name one reduction.",
      "isa/test_alu.py::test_rules_167_and_189_other_tokens",
      "isa/test_tensor_reduce.py::test_max_is_maximum",
      "isa/test_tensor_scalar_reduce.py::test_result_and_fold")  # fmt: skip
def test_rule_189_names_of_reductions():
    x = np.array([[-4, -2, -9]], f32)
    for op, expected in ((nl.max, -2), (nl.maximum, -2), (nl.min, -9), (nl.minimum, -9)):
        same(run(nisa.tensor_reduce, dst=Out((1, 1)), op=op, data=x, axis=1), np.array([[expected]], f32))


@also(75)
def test_rule_075_chain_of_two():
    @nki.jit
    def kernel(x):
        t, scratch, total = load(x), sbuf(x.shape), sbuf((1, 1))
        for half, command in ((t[:, 0:2], cmd.reset_reduce), (t[:, 2:4], cmd.reduce)):
            last = command is cmd.reduce
            nisa.tensor_scalar_reduce(
                dst=scratch[:, 0:2],
                data=half,
                op0=nl.multiply,
                operand0=2.0,
                reduce_op=nl.add,
                reduce_cmd=command,
                reduce_res=total if last else None,
                reduce_res_negate=last,
            )
        return store(total)

    same(nki.simulate(kernel)(np.array([[1, 2, 3, 4]], f32)), np.array([[-20]], f32))


@also(187)
def test_rule_187_multiply_then_add():
    call = {"op": nl.copy, "op0": nl.multiply, "imm0": 3.0, "op1": nl.subtract, "imm1": 4.0, "reverse1": True}
    found = run(nisa.activate2, target="trn3", dst=Out((1, 2)), data=np.array([[1, 2]], f32), **call)
    same(found, np.array([[1, -2]], f32))


@also(72)
def test_rule_072_reset_is_zero():
    def body(t):
        scratch, total = sbuf(t.shape), sbuf((4, 1))
        for command, result in ((cmd.reset_reduce, None), (cmd.reset, None), (cmd.reduce, total)):
            op = nl.add if command is not cmd.reset else None
            nisa.activation(
                dst=scratch, op=nl.copy, data=t, reduce_op=op, reduce_cmd=command, reduce_res=result
            )
        return total

    x = counted(4, 8)
    same(nki.simulate(kernel_of(body))(x), x.sum(1, keepdims=True))
