"""ALU operators against plain Python arithmetic, element by element."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from nki.enums import engine, nc_version
from nki.errors import OperatorError
from nki.isa.activation_functions import ACTIVATIONS
from nki.isa.alu import ALU, alu, as_alu_op

INF = math.inf
FLOATS = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -3.25, 7.0, 1e30, -1e30, INF, -INF]

# The second entry of the table in double entry: what each operator means, in Python.
BINARY = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": lambda x, y: x if x > y else y,
    "minimum": lambda x, y: x if x < y else y,
    "equal": lambda x, y: 1.0 if x == y else 0.0,
    "not_equal": lambda x, y: 0.0 if x == y else 1.0,
    "greater": lambda x, y: 1.0 if x > y else 0.0,
    "greater_equal": lambda x, y: 1.0 if x >= y else 0.0,
    "less": lambda x, y: 1.0 if x < y else 0.0,
    "less_equal": lambda x, y: 1.0 if x <= y else 0.0,
    "logical_and": lambda x, y: 1.0 if x != 0 and y != 0 else 0.0,
    "logical_or": lambda x, y: 1.0 if x != 0 or y != 0 else 0.0,
    "logical_xor": lambda x, y: 1.0 if (x != 0) != (y != 0) else 0.0,
    "abs_max": lambda x, y: x if abs(x) > abs(y) else y,
    "abs_min": lambda x, y: x if abs(x) < abs(y) else y,
}
UNARY = {
    "abs": abs,
    "square": lambda x: x * x,
    "relu": lambda x: x if x > 0 else 0.0,
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else INF if x == 0 else math.nan,
    "reciprocal": lambda x: 1 / x if x else INF,
}
BITS = {
    "bitwise_and": lambda x, y, width: x & y,
    "bitwise_or": lambda x, y, width: x | y,
    "bitwise_xor": lambda x, y, width: x ^ y,
    "left_shift": lambda x, y, width: (x << y) & ((1 << width) - 1) if y < width else 0,
    "right_shift": lambda x, y, width: x >> y if y < width else 0,
}
FOLDS = ("add", "subtract", "multiply", "maximum", "minimum", "logical_and", "logical_or", "logical_xor")


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def same(got, expected):
    np.testing.assert_array_equal(np.asarray(got, np.float32), np.array(expected, np.float32))


def test_the_table_is_complete():
    assert set(ALU) == {*BINARY, *UNARY, *BITS, "invert", "power"}
    assert all(name == row.name == str(row) and row.doc for name, row in ALU.items())


@pytest.mark.parametrize("name", BINARY)
def test_binary_arithmetic(name):
    pairs = [(x, y) for x in FLOATS for y in FLOATS]
    x, y = (np.array(side, np.float32).reshape(12, 12) for side in zip(*pairs))
    out = np.full_like(x, 99)
    ALU[name].function(x, y, out)
    same(out.ravel(), [BINARY[name](float(np.float32(a)), float(np.float32(b))) for a, b in pairs])
    for target in (x, y):  # the result may overwrite an input
        inputs = [x.copy(), y.copy()]
        inplace = inputs[0] if target is x else inputs[1]
        ALU[name].function(*inputs, inplace)
        same(inplace, out)


@pytest.mark.parametrize("name", BINARY)
def test_an_operand_may_be_a_scalar_a_column_or_a_strided_view(name):
    x = np.array([[1.0, -2.0, 0.0], [3.0, 0.5, -4.0]], np.float32)
    column = np.array([[2.0], [-4.0]], np.float32)
    wide = np.zeros((2, 6), np.float32)
    for left, right in ((x, np.float32(2)), (np.float32(-2), x), (x, column), (column, x)):
        ALU[name].function(left, right, wide[:, ::2])
        a, b = np.broadcast_arrays(left, right)
        same(wide[:, ::2].ravel(), [BINARY[name](float(p), float(q)) for p, q in zip(a.ravel(), b.ravel())])
    assert not wide[:, 1::2].any()


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x = np.array([FLOATS, FLOATS], np.float32)
    out = np.full_like(x, 99)
    ALU[name].function(x, out)
    same(out[1], [np.float32(UNARY[name](v)) if abs(v) < 1e29 else out[0][i] for i, v in enumerate(FLOATS)])
    ALU[name].function(x, x)
    same(x, out)


def test_extremes_of_unary_operators():
    x = np.array([[1e30, INF, -INF, 1e-40]], np.float32)
    for name, expected in (
        ("abs", [1e30, INF, INF, 1e-40]),
        ("square", [INF, INF, INF, 0.0]),
        ("relu", [1e30, INF, 0.0, 1e-40]),
        ("reciprocal", [1e-30, 0.0, -0.0, INF]),
    ):
        out = np.empty_like(x)
        ALU[name].function(x, out)
        np.testing.assert_allclose(out[0], np.array(expected, np.float32), rtol=2**-23)


def test_power():
    pairs = [(2.0, 10.0), (9.0, 0.5), (2.0, -1.0), (-2.0, 3.0), (5.0, 0.0), (0.0, 2.0)]
    x, y = (np.array(side, np.float32) for side in zip(*pairs))
    out = np.empty_like(x)
    ALU["power"].function(x, y, out)
    np.testing.assert_allclose(out, [math.pow(a, b) for a, b in pairs], rtol=2**-22)


@pytest.mark.parametrize("width", [8, 16, 32])
@pytest.mark.parametrize("name", BITS)
def test_rule_9_bit_operators_act_on_patterns(name, width):
    values = [0, 1, 2, 3, 5, 7, width - 1, width, width + 1, 200, (1 << width) - 1, 1 << (width - 1)]
    pairs = [(x, y) for x in values for y in values]
    x, y = (np.array(side, f"u{width // 8}") for side in zip(*pairs))
    out = np.empty_like(x)
    ALU[name].function(x, y, out)
    assert out.tolist() == [BITS[name](a, b, width) for a, b in pairs]


def test_rule_20_invert_flips_each_bit():
    x = np.array([0, 1, 0x5A], np.uint8)
    ALU["invert"].function(x, x)
    assert x.tolist() == [255, 254, 0xA5]


def test_rule_13_integer_arithmetic_is_exact():
    x, y = np.array([2**31 - 2, 123456789], np.int32), np.array([1, 987654321], np.int32)
    out = np.empty_like(x)
    for name, expected in (("add", [2**31 - 1, 1111111110]), ("subtract", [2**31 - 3, -864197532])):
        ALU[name].function(x, y, out)
        assert out.tolist() == expected


def test_nan_passes_through_maximum_minimum_and_relu():
    nan, one, out = np.array([math.nan], np.float32), np.array([1.0], np.float32), np.zeros(1, np.float32)
    for name in ("maximum", "minimum"):
        for operands in ((nan, one), (one, nan)):
            ALU[name].function(*operands, out)
            assert math.isnan(out[0])
    ALU["relu"].function(nan, out)
    assert math.isnan(out[0])


# --- reductions ---


def fold(name, values):
    """Fold one operator over a list, in order; without rounding, so the values should be exact."""
    total = values[0] if not name.startswith("logical") else float(values[0] != 0)
    for value in values[1:]:
        total = BINARY[name](total, value)
    return total


def test_rule_12_reduction_operators():
    assert {name for name, row in ALU.items() if row.reduce} == {
        *FOLDS,
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    }
    assert all(row.reduce_function is not None for row in ALU.values() if row.reduce)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", [*FOLDS, "abs_max", "abs_min"])
def test_reduce_over_axes(name, keep):
    values = np.random.default_rng(1).integers(-3, 4, (3, 2, 2, 5)).astype(np.float32)
    for axis, shape in ((3, (3, 2, 2)), ((3,), (3, 2, 2)), ((2, 3), (3, 2)), ((1, 2, 3), (3,))):
        axes = (axis,) if isinstance(axis, int) else axis
        kept = shape + (1,) * len(axes) if keep else shape
        out = np.full(kept, 99, np.float32)
        ALU[name].reduce_function(values, axis, out)
        rows = values.reshape(-1, math.prod(values.shape[4 - len(axes) :]))
        same(out.ravel(), [fold(name, row) for row in rows.tolist()])


@pytest.mark.parametrize("name", [*FOLDS, "abs_max", "abs_min"])
def test_reduce_reads_and_writes_strided_views(name):
    big, result = np.zeros((4, 12), np.float32), np.zeros((4, 3), np.float32)
    values = big[:, 1::3]
    values[...] = [[1, 2, -3, 4], [0, 0, 0, 0], [-1, 1, -1, 1], [5, 0, 2, 1]]
    ALU[name].reduce_function(values, 1, result[:, 1:2])
    same(result[:, 1], [fold(name, row) for row in values.tolist()])
    assert not result[:, 0].any() and not result[:, 2].any()


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bit_reductions(name):
    values = np.random.default_rng(2).integers(0, 1 << 32, (4, 3, 3), dtype=np.uint32)
    out = np.empty((4, 1, 1), np.uint32)
    ALU[name].reduce_function(values, (1, 2), out)
    for row, got in zip(values.reshape(4, 9).tolist(), out.ravel().tolist()):
        total = row[0]
        for value in row[1:]:
            total = BITS[name](total, value, 32)
        assert got == total


@pytest.mark.parametrize("name", [*FOLDS, "abs_max", "abs_min", "bitwise_or", "bitwise_xor"])
def test_a_fold_may_start_from_the_identity(name):
    row = ALU[name]
    bits = row.kind == "bitvec"
    values = np.array([0, 1, 9] if bits else [-2.5, 0.0, 1.0, INF], np.uint32 if bits else np.float32)
    start, out = np.full_like(values, row.identity), np.empty_like(values)
    if name == "subtract":  # from the right
        row.function(values, start, out)
    else:
        row.function(start, values, out)
    expected = (values != 0).astype(np.float32) if name.startswith("logical") else values
    np.testing.assert_array_equal(out, expected)


def test_sums_are_accurate():
    values = np.random.default_rng(3).uniform(0, 1, (2, 4096)).astype(np.float32)
    out = np.empty(2, np.float32)
    ALU["add"].reduce_function(values, 1, out)
    np.testing.assert_allclose(out, [math.fsum(row) for row in values.tolist()], rtol=1e-6)


# --- facts and tokens ---


def test_engines_and_generations():
    assert ALU["power"].engines == (engine.gpsimd,) and ALU["rsqrt"].engines[0] is engine.gpsimd
    assert all(row.engines[0] is engine.vector for row in ALU.values() if row.name not in ("power", "rsqrt"))
    newer = {name for name, row in ALU.items() if row.since is nc_version.gen4}
    assert newer == {"abs_max", "abs_min", "square", "relu"}
    assert {name for name, row in ALU.items() if row.kind == "bitvec"} == {*BITS, "invert"}
    compares = {"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"}
    assert {name for name, row in ALU.items() if row.compare} == compares
    assert {name for name, row in ALU.items() if row.arity == 1} == {*UNARY, "invert"}


def test_a_token_is_an_operator_a_name_or_a_marked_function():
    def add(x, y):
        return None

    add.nki_token = "add"
    assert as_alu_op(ALU["add"]) is as_alu_op("add") is as_alu_op(add) is alu("add") is ALU["add"]


@pytest.mark.parametrize(
    ("function", "name"),
    [(np.add, "add"), (np.sum, "add"), (np.max, "maximum"), (np.amax, "maximum"), (np.min, "minimum")]
    + [(np.minimum, "minimum"), (np.abs, "abs"), (np.prod, "multiply"), (np.bitwise_not, "invert")]
    + [(np.left_shift, "left_shift"), (np.power, "power"), (np.greater_equal, "greater_equal")]
    + [(np.all, "logical_and"), (np.any, "logical_or"), ("max", "maximum"), ("min", "minimum")],
)
def test_rules_167_and_189_other_tokens(function, name):
    assert as_alu_op(function) is ALU[name]


NO_OPERATORS = [ACTIVATIONS["exp"], "exp", "amax", "", None, 3, [1], np, np.exp, np.divide, np.float32]
NO_OPERATORS += [len, max, math.exp, lambda x: x]


@pytest.mark.parametrize("token", NO_OPERATORS)
def test_what_is_no_operator_is_refused(token):
    with pytest.raises(TypeError) as caught:
        as_alu_op(token)
    assert isinstance(caught.value, OperatorError)


def test_the_refusal_proposes_a_name():
    with pytest.raises(OperatorError) as caught:
        alu("mulitply")
    assert caught.value.remedy == "did you mean nl.multiply?"
    assert "greater_equal" in str(caught.value.allowed)


def test_no_call_is_deprecated():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.ones((2, 2), np.float32)
        for row in ALU.values():
            values = x if row.kind == "arith" else x.astype(np.uint8)
            row.function(*([values] * row.arity), values.copy())
            if row.reduce_function:
                row.reduce_function(values, 1, values[0].copy())
