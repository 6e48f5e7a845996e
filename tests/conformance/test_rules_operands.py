"""Rules 176 to 179: dtypes of operands, what folds see, NaN, predicates."""

from __future__ import annotations

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, INFERRED, UNKNOWN, rule
from tests.isa.single import Out, bf16, diagnose, f32, run, same


@rule(176, DOCUMENTED, "Operands that must be float32: scales, immediates, bounds, fills; "
      "scalar_tensor_tensor's operand0 is free.",
      "isa/test_activation.py::test_rule_176_dtypes_of_scale_and_bias", "isa/test_dropout.py::test_dtypes",
      "isa/test_tensor_scalar.py::test_operand_tiles_should_be_float32",
      "isa/test_scalar_tensor_tensor.py::test_column_of_any_type",
      "isa/test_activate2.py::test_columns_and_their_dtypes")  # fmt: skip
def test_rule_176_operand_types():
    x, column = np.ones((2, 3), bf16), np.ones((2, 1), bf16)
    call = {"dst": Out((2, 3)), "data": x, "op0": nl.add}
    assert [d.severity for d in diagnose(nisa.tensor_scalar, operand0=column, **call)] == ["note"]
    assert diagnose(nisa.scalar_tensor_tensor, operand0=column, op1=nl.add, operand1=x, **call) == []
    with pytest.raises(errors.OperandDtypeError, match="scale"):
        run(nisa.activation, dst=Out((2, 3)), op=nl.copy, data=x, scale=column)


@rule(177, INFERRED, "Built-in reductions fold the float32 results, before they are rounded into dst "
      "(documented for range_select).",
      "isa/test_activation__registers.py::test_rule_177_sum_of_the_float32_results",
      "isa/test_tensor_scalar_reduce.py::test_the_fold_sees_float32",
      "isa/test_exponential.py::test_rule_177_the_sum_is_of_float32",
      "isa/test_select_reduce.py::test_rule_177_the_maximum_is_of_float32")  # fmt: skip
def test_rule_177_folds():
    x = np.full((1, 2), 257, f32)
    _, total = run(nisa.tensor_scalar_reduce, dst=Out((1, 2), nl.bfloat16), data=x, op0=nl.multiply, operand0=1.0,
                   reduce_op=nl.add, reduce_res=Out((1, 1)))  # fmt: skip
    assert total[0, 0] == 514


@rule(178, UNKNOWN, "NaN passes through maximum, minimum and relu and compares as false; NaN to integer "
      "is 0; subnormals are kept.", "isa/test_alu.py::test_nan_passes_through_maximum_minimum_and_relu")  # fmt: skip
def test_rule_178_special_values():
    x = np.array([[np.nan, 1e-40]], f32)
    found = run(nisa.tensor_scalar, dst=Out((1, 2)), data=x, op0=nl.maximum, operand0=0.0)
    np.testing.assert_array_equal(found, x)
    found = run(nisa.tensor_scalar, dst=Out((1, 2)), data=x, op0=nl.greater_equal, operand0=0.0)
    same(found, np.array([[0, 1]], f32))


@rule(179, DOCUMENTED, "reverse_pred negates logically: any nonzero mask selects; masks are unsigned (and "
      "int8 for select_reduce).",
      "isa/test_tensor_copy_predicated.py::test_rule_179_reverse_is_logical_negation",
      "isa/test_select_reduce.py::test_rule_179_reverse_is_logical_negation",
      "isa/test_select_reduce.py::test_rule_179_predicate_dtypes")  # fmt: skip
def test_rule_179_reversed_predicates():
    x, mask = np.array([[1, 2, 3]], f32), np.array([[0, 2, 255]], np.uint8)
    for reverse, expected in ((False, [[0, 2, 3]]), (True, [[1, 0, 0]])):
        found = run(
            nisa.tensor_copy_predicated, dst=Out((1, 3), fill=0), src=x, predicate=mask, reverse_pred=reverse
        )
        same(found, np.array(expected, f32))
