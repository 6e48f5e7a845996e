"""Rules 84 to 93 and 190: activation functions, ALU operators and their places, engines."""

from __future__ import annotations

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.enums import engine as Engine
from nki.ir.instruction import REGISTRY
from tests.conformance.registry import DOCUMENTED, INFERRED, also, covered, rule
from tests.conformance.steps import counted, f32
from tests.isa.single import Out, Psum, bf16, run, same, staged

FUNCTIONS = "isa/test_activation_functions.py"
SCALAR = "isa/test_tensor_scalar.py"

NAMES = [
    "copy",
    "square",
    "sigmoid",
    "relu",
    "prelu",
    "gelu",
    "gelu_dx",
    "gelu_apprx_tanh",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx",
    "silu",
    "silu_dx",
    "tanh",
    "softplus",
    "mish",
    "erf",
    "erf_dx",
    "exp",
    "log",
    "sin",
    "arctan",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sign",
    "abs",
]


@rule(84, DOCUMENTED, "26 activation functions; NumPy functions are no tokens in the new API.",
      f"{FUNCTIONS}::test_rule_84_the_table_has_26_functions",
      "isa/test_activation.py::test_rule_84_every_function",
      f"{FUNCTIONS}::test_what_is_no_activation_function_is_refused")  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_rule_084_functions(name):
    assert len(NAMES) == 26
    found = run(nisa.activation, dst=Out((1, 1)), op=getattr(nl, name), data=np.array([[0.5]], f32))
    assert np.isfinite(found).all()


@rule(85, DOCUMENTED, "Six functions have a range outside which their result is undefined: the table "
      "records it.", f"{FUNCTIONS}::test_rule_85_valid_ranges")  # fmt: skip
def test_rule_085_ranges():
    from nki.isa.activation_functions import ACTIVATIONS

    ranges = {name: ACTIVATIONS[name].valid for name in NAMES if ACTIVATIONS[name].valid}
    assert set(ranges) == {"log", "sin", "arctan", "sqrt", "rsqrt", "reciprocal"}
    assert ranges["log"] == (2.0**-64, 2.0**64) and ranges["rsqrt"] == (2.0**-87, 2.0**97)


@rule(86, DOCUMENTED, "sin does no range reduction: outside [-pi, pi] it goes on as a cubic; nl.sin "
      "reduces first.", f"{FUNCTIONS}::test_rule_86_sin_continues_as_a_cubic",
      "language/test_trigonometry.py::test_documented_examples")  # fmt: skip
def test_rule_086_sin():
    found = run(nisa.activation, dst=Out((1, 2)), op=nl.sin, data=np.array([[9.0, 1.0]], f32))
    assert abs(found[0, 0] - 27.65) < 0.05 and abs(found[0, 1] - np.sin(1)) < 1e-6


@rule(87, INFERRED, "Functions follow their mathematical definition, where hardware uses piecewise "
      "polynomials.", f"{FUNCTIONS}::test_accuracy", f"{FUNCTIONS}::test_derivatives_and_torch")  # fmt: skip
def test_rule_087_definitions():
    x = np.linspace(-4, 4, 33, dtype=f32)[None]
    sigmoid = lambda v: 1 / (1 + np.exp(-v.astype(np.float64)))  # noqa: E731
    for op, expected in (
        (nl.sigmoid, sigmoid(x)),
        (nl.gelu_apprx_sigmoid, x * sigmoid(1.702 * x)),
        (nl.silu, x * sigmoid(x)),
    ):
        np.testing.assert_allclose(
            run(nisa.activation, dst=Out((1, 33)), op=op, data=x), expected, rtol=2e-6, atol=1e-7
        )


covered(88, DOCUMENTED, "activation(copy) copies on the Scalar engine, through float32.",
        "isa/test_activation.py::test_rule_88_copy_goes_through_float32")  # fmt: skip


@rule(89, DOCUMENTED, "Unary operators take None or 0 as operand; square, relu, abs_max, abs_min need "
      "trn3; rsqrt and power are GpSimd's.", f"{SCALAR}::test_unary_operators",
      f"{SCALAR}::test_operators_of_trn3", f"{SCALAR}::test_rsqrt_and_power_run_on_gpsimd",
      "isa/test_alu.py::test_engines_and_generations")  # fmt: skip
def test_rule_089_unary_operators():
    x = np.array([[4, 16]], f32)
    call = {"dst": Out((1, 2)), "data": x}
    for operand in (None, 0, 0.0):
        same(run(nisa.tensor_scalar, op0=nl.rsqrt, operand0=operand, **call), np.array([[0.5, 0.25]], f32))
    with pytest.raises(errors.NkiError, match="rsqrt"):
        run(nisa.tensor_scalar, op0=nl.rsqrt, operand0=2.0, **call)
    with pytest.raises(errors.NkiError, match="trn3"):
        run(nisa.tensor_scalar, target="trn2", op0=nl.square, operand0=None, **call)
    with pytest.raises(errors.EngineError, match="PSUM"):
        run(nisa.tensor_scalar, dst=Out((1, 2)), data=Psum(x), op0=nl.rsqrt, operand0=None)


@rule(90, DOCUMENTED, "abs, rsqrt and power work in tensor_scalar and tensor_tensor.",
      "isa/test_tensor_tensor.py::test_power_runs_on_gpsimd")  # fmt: skip
def test_rule_090_operators_that_were_missing():
    x = np.array([[-4, 9]], f32)
    same(run(nisa.tensor_scalar, dst=Out((1, 2)), data=x, op0=nl.abs, operand0=None), np.abs(x))
    same(run(nisa.tensor_scalar, dst=Out((1, 2)), data=x, op0=nl.power, operand0=2.0), x * x)
    same(run(nisa.tensor_tensor, dst=Out((1, 2)), data1=x, data2=np.full((1, 2), 2, f32), op=nl.power), x * x)


OWN = {
    Engine.vector: "tensor_reduce tensor_tensor_scan bn_stats bn_aggr reciprocal max8 nc_find_index8 nc_match_replace8 "
    "range_select select_reduce exponential quantize_mx tensor_copy_predicated nc_stream_shuffle dropout",
    Engine.gpsimd: "iota affine_select local_gather nc_n_gather tensor_partition_reduce sequence_bounds "
    "nonzero_with_count topk",
    Engine.scalar: "activation activation_reduce activate2",
    Engine.tensor: "nc_matmul nc_matmul_mx",
}


@rule(91, DOCUMENTED, "Each instruction has its engine, or a choice among documented ones.",
      "isa/test_compute.py::test_calls_return_handles")  # fmt: skip
def test_rule_091_engines():
    for engine, names in OWN.items():
        for name in names.split():
            assert REGISTRY[name].engines == (engine,), name
    assert (
        set(REGISTRY["memset"].engines)
        == {Engine.vector, Engine.gpsimd}
        == set(REGISTRY["tensor_tensor"].engines)
    )
    assert set(REGISTRY["tensor_copy"].engines) == {Engine.vector, Engine.gpsimd, Engine.scalar}
    assert set(REGISTRY["nc_transpose"].engines) == {Engine.tensor, Engine.vector}
    chosen = staged(nisa.tensor_copy, dst=Out((1, 1)), src=np.ones((1, 1), f32), engine=nisa.engine.gpsimd)
    assert chosen.engine is Engine.gpsimd


@rule(92, DOCUMENTED, "tensor_scalar on the Scalar engine: not on trn1, on trn2 multiply, add and "
      "multiply+add; bits on Vector only.", f"{SCALAR}::test_scalar_engine",
      open="trn3 takes any arithmetic operator there")  # fmt: skip
def test_rule_092_scalar_engine():
    call = {"dst": Out((1, 2)), "data": np.ones((1, 2), f32), "operand0": 2.0, "engine": nisa.engine.scalar}
    with pytest.raises(errors.EngineError, match="trn1"):
        run(nisa.tensor_scalar, target="trn1", op0=nl.add, **call)
    same(
        run(nisa.tensor_scalar, target="trn2", op0=nl.multiply, op1=nl.add, operand1=1.0, **call),
        np.full((1, 2), 3, f32),
    )
    with pytest.raises(errors.EngineError):
        run(nisa.tensor_scalar, target="trn2", op0=nl.subtract, **call)


covered(93, DOCUMENTED, "nisa.vector_engine and its like are spellings of nisa.engine members.",
        "isa/test_compute.py::test_deprecated_names_of_engines")  # fmt: skip


@rule(190, DOCUMENTED, "Operators and their places: binary ones in tensor_tensor, any in tensor_scalar, "
      "arithmetic in scans and folds, comparisons in selects; data is on the left, reverse0 and reverse1 "
      "swap; tensor_scalar_reduce's reverse0 is a note.",
      "isa/test_tensor_tensor.py::test_operators_have_two_operands",
      "isa/test_affine_select.py::test_comparisons_only",
      "isa/test_tensor_scalar_reduce.py::test_reverse0_is_a_note",
      "isa/test_scalar_tensor_tensor.py::test_arithmetic_operators_only",
      "isa/test_tensor_scalar_cumulative.py::test_rules_176_190_operands_and_operators")  # fmt: skip
def test_rule_190_places():
    x = np.array([[3, 5]], f32)
    call = {"dst": Out((1, 2)), "data": x, "op0": nl.subtract, "operand0": 1.0}
    same(run(nisa.tensor_scalar, **call), x - 1)
    same(run(nisa.tensor_scalar, reverse0=True, **call), 1 - x)
    found = run(nisa.tensor_scalar, reverse1=True, op1=nl.subtract, operand1=8.0, **call)
    same(found, 8 - (x - 1))
    for call in (
        {"instruction": nisa.tensor_tensor, "data1": x, "data2": x, "op": nl.exp},
        {
            "instruction": nisa.scalar_tensor_tensor,
            "data": x,
            "op0": nl.bitwise_and,
            "operand0": 1.0,
            "op1": nl.add,
            "operand1": x,
        },
        {
            "instruction": nisa.affine_select,
            "pattern": [[1, 2]],
            "channel_multiplier": 0,
            "on_true_tile": x,
            "on_false_value": 0.0,
            "cmp_op": nl.add,
        },
    ):
        with pytest.raises((errors.NkiError, TypeError)):
            run(dst=Out((1, 2)), **call)


@also(88)
def test_rule_088_through_float32():
    x = np.array([[16777217]], np.int32)
    assert run(nisa.activation, dst=Out((1, 1), nl.int32), op=nl.copy, data=x)[0, 0] == 16777216
    same(
        run(nisa.activation, target="trn1", dst=Out((1, 1)), op=nl.copy, data=x.astype(bf16)),
        x.astype(bf16).astype(f32),
    )


@also(93)
@pytest.mark.parametrize("name", ["tensor", "vector", "scalar", "gpsimd", "unknown"])
def test_rule_093_aliases(name):
    assert getattr(nisa, f"{name}_engine") is nisa.engine[name]
    if name in ("vector", "gpsimd"):
        same(
            run(nisa.memset, dst=Out((1, 4)), value=1.0, engine=getattr(nisa, f"{name}_engine")),
            0 * counted(1, 4) + 1,
        )
