"""Activation functions against the `math` module (and, for derivatives, torch's automatic ones)."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from nki.errors import OperatorError
from nki.isa.activation_functions import ACTIVATIONS, as_activation
from nki.isa.alu import ALU

SIGMOID_SLOPE = 1.702


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def normal_cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def swish_dx(x, slope):
    s, rest = sigmoid(slope * x), sigmoid(-slope * x)
    return s * (1 + slope * x * rest)


def gelu_tanh(x):
    """Written with exp, as `1 + tanh` cancels for negative x."""
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def softplus(x):
    return math.log1p(math.exp(x)) if x < 30 else x + math.exp(-x)


# Formulas of the public documentation, in double precision; one row for each function.
EXACT = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "sigmoid": sigmoid,
    "relu": lambda x: x if x > 0 else 0.0,
    "prelu": lambda x: x if x >= 0 else 0.0,
    "gelu": lambda x: x * normal_cdf(x),
    "gelu_dx": lambda x: normal_cdf(x) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "gelu_apprx_tanh": gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(SIGMOID_SLOPE * x),
    "gelu_apprx_sigmoid_dx": lambda x: swish_dx(x, SIGMOID_SLOPE),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: swish_dx(x, 1.0),
    "tanh": math.tanh,
    "softplus": softplus,
    "mish": lambda x: x * math.tanh(softplus(x)),
    "erf": math.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "arctan": math.atan,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sign": lambda x: (x > 0) - (x < 0),
    "abs": abs,
}

NEGATIVE_TOO = {"reciprocal"}
SMALLEST = float(np.finfo(np.float32).smallest_subnormal)


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def apply(name, values, *more):
    x = np.array(values, np.float32)
    out = np.full_like(x, 99)
    ACTIVATIONS[name].function(x, out, *more)
    return out


def inputs(name):
    """Inputs in the valid range: spread evenly, spread over all magnitudes, and the ends."""
    random = np.random.default_rng(11)
    valid = ACTIVATIONS[name].valid
    if valid is None:
        spread = random.uniform(-20, 20, 30_000)
        small = np.exp2(random.uniform(-40, 6, 20_000)) * random.choice([-1, 1], 20_000)
        values = np.concatenate([spread, small, [0.0]])
    elif valid[0] < 0:
        values = np.concatenate([random.uniform(*valid, 30_000), np.exp2(random.uniform(-40, 0, 10_000))])
    else:
        values = np.exp2(random.uniform(math.log2(valid[0]), math.log2(valid[1]), 40_000))
        values = np.concatenate([values, random.uniform(0.5, 2, 20_000), valid])
        if name in NEGATIVE_TOO:
            values = np.concatenate([values, -values])
    return values.astype(np.float32)


def units_off(got, exact):
    """The error in units in the last place of the float32 nearest to the exact value."""
    unit = np.maximum(np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64), SMALLEST)
    return np.abs(got.astype(np.float64) - exact) / unit


def test_rule_84_the_table_has_26_functions():
    assert set(ACTIVATIONS) == set(EXACT) and len(EXACT) == 26
    assert all(name == row.name == str(row) and row.doc and row.table for name, row in ACTIVATIONS.items())


@pytest.mark.parametrize("name", EXACT)
def test_accuracy(name):
    x = inputs(name)
    exact = np.array([EXACT[name](v) for v in x.tolist()], np.float64)
    error = units_off(apply(name, x), exact)
    if name.endswith("_dx"):  # these cross zero, where only the absolute error can be small
        error = np.where(np.abs(exact) < 1e-6, np.abs(apply(name, x) - exact) / 1e-13, error)
    worst = int(np.argmax(error))
    assert error[worst] <= 1.0, f"{name}({x[worst]!r}) is {error[worst]:.2f} units off"


@pytest.mark.parametrize("name", EXACT)
def test_shape_layout_and_aliasing_do_not_matter(name):
    x = (np.abs(inputs(name)[:30_000]) + 0.25).reshape(2, 3, 5000)  # several blocks of rows
    expected = apply(name, x)
    function = ACTIVATIONS[name].function
    big = np.zeros((2, 3, 10_000), np.float32)
    function(x, big[:, :, ::2])
    np.testing.assert_allclose(big[:, :, ::2], expected, rtol=2**-21)
    big[:, :, ::2] = x
    function(big[:, :, ::2], big[:, :, ::2])
    np.testing.assert_allclose(big[:, :, ::2], expected, rtol=2**-21)
    assert not big[:, :, 1::2].any()
    column = x[:, :1, 0].copy()
    function(column, column)
    np.testing.assert_allclose(column, expected[:, :1, 0], rtol=2**-21)


@pytest.mark.parametrize("name", ["gelu", "gelu_apprx_tanh", "silu", "gelu_apprx_sigmoid"])
def test_derivatives_and_torch(name):
    torch = pytest.importorskip("torch")
    x = torch.linspace(-12, 12, 4001, dtype=torch.float64, requires_grad=True)
    nn = torch.nn.functional
    y = {
        "gelu": lambda: nn.gelu(x),
        "gelu_apprx_tanh": lambda: nn.gelu(x, approximate="tanh"),
        "silu": lambda: nn.silu(x),
        "gelu_apprx_sigmoid": lambda: x * torch.sigmoid(SIGMOID_SLOPE * x),
    }[name]()
    y.sum().backward()
    values = x.detach().numpy()
    np.testing.assert_allclose(apply(name, values), y.detach().numpy(), rtol=1e-6, atol=1e-6)
    if name != "gelu_apprx_tanh":
        np.testing.assert_allclose(apply(name + "_dx", values), x.grad.numpy(), rtol=1e-6, atol=1e-6)


FAR = [3.4028235e38, 1e30, 200.0, -200.0, -1e30, -3.4028235e38]
SAME = [3.4028235e38, 1e30, 200.0]
LIMITS = {
    "sigmoid": [1, 1, 1, 0, 0, 0],
    "tanh": [1, 1, 1, -1, -1, -1],
    "erf": [1, 1, 1, -1, -1, -1],
    "exp": [math.inf, math.inf, math.inf, 0, 0, 0],
    "erf_dx": [0, 0, 0, 0, 0, 0],
    **{name: [*SAME, 0, 0, 0] for name in ("relu", "gelu", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "silu")},
    **{name: [*SAME, 0, 0, 0] for name in ("softplus", "mish")},
    **{name: [1, 1, 1, 0, 0, 0] for name in ("gelu_dx", "gelu_apprx_sigmoid_dx", "silu_dx")},
}


@pytest.mark.parametrize("name", LIMITS)
def test_far_from_zero(name):
    np.testing.assert_array_equal(apply(name, FAR), np.array(LIMITS[name], np.float32))


@pytest.mark.parametrize("name", EXACT)
def test_nan_stays_nan(name):
    assert math.isnan(apply(name, [math.nan, 1.0])[0])


def test_exp_of_minus_infinity_is_exactly_zero():
    assert apply("exp", [-math.inf]).tolist() == [0.0]


def test_rule_86_sin_continues_as_a_cubic():
    assert abs(apply("sin", [9.0])[0] - 27.65) < 0.005
    assert apply("sin", [-9.0])[0] == -apply("sin", [9.0])[0]
    end = np.float32(math.pi)
    around = [float(end)]
    for _ in range(50):
        around.append(float(np.nextafter(np.float32(around[-1]), np.float32(4))))
    np.testing.assert_allclose(apply("sin", around), [math.sin(v) for v in around], rtol=1e-6)
    third_differences = np.diff(apply("sin", np.arange(4, 12, 0.5)).astype(np.float64), 3)
    np.testing.assert_allclose(third_differences, 0.125, rtol=1e-3)  # a cubic with leading coefficient 1/6


def test_prelu_takes_the_slope_of_activate2():
    x = [-2.0, -0.5, 0.0, 3.0]
    assert apply("prelu", x).tolist() == [0.0, 0.0, 0.0, 3.0]
    assert apply("prelu", x, np.float32(0.25)).tolist() == [-0.5, -0.125, 0.0, 3.0]


def test_rule_85_valid_ranges():
    cases = {
        "log": ([2.0**-64, 2.0**64], [2.0**-65, 2.0**65, 0.0, -1.0]),
        "sin": ([-3.0, 3.0], [-3.2, 3.2]),
        "arctan": ([-1.5, 1.5], [-1.6, 1.6]),
        "sqrt": ([2.0**-116, 2.0**118], [0.0, 2.0**-117, 2.0**119, -1.0]),
        "rsqrt": ([2.0**-87, 2.0**97], [2.0**-88, 2.0**98, -1.0]),
        "reciprocal": ([2.0**-42, -(2.0**-42), 2.0**42, -(2.0**42)], [0.0, 2.0**-43, -(2.0**43)]),
    }
    assert {name for name, row in ACTIVATIONS.items() if row.valid is not None} == set(cases)
    for name, (inside, outside) in cases.items():
        assert ACTIVATIONS[name].is_valid(np.array(inside, np.float32)).all()
        assert not ACTIVATIONS[name].is_valid(np.array(outside, np.float32)).any()
    assert ACTIVATIONS["gelu"].is_valid(np.array([-1e30, math.nan], np.float32)).all()


def test_one_formula_for_alu_and_activation():
    x = np.exp2(np.linspace(-80, 80, 500)).astype(np.float32)
    for name in ("abs", "square", "relu", "rsqrt", "reciprocal"):
        out = np.empty_like(x)
        ALU[name].function(x, out)
        np.testing.assert_array_equal(out, apply(name, x))


@pytest.mark.parametrize(
    ("token", "name"),
    [
        ("gelu", "gelu"),
        (np.exp, "exp"),
        (np.tanh, "tanh"),
        (np.copy, "copy"),
        (np.abs, "abs"),
        (np.sign, "sign"),
    ]
    + [(np.log, "log"), (np.sin, "sin"), (np.arctan, "arctan"), (np.sqrt, "sqrt"), (np.square, "square")]
    + [(np.reciprocal, "reciprocal")],
)
def test_tokens(token, name):
    assert (
        as_activation(token) is as_activation(name) is as_activation(ACTIVATIONS[name]) is ACTIVATIONS[name]
    )


def test_a_marked_function_is_a_token():
    def silu(x):
        return None

    silu.nki_token = "silu"
    assert as_activation(silu) is ACTIVATIONS["silu"]


@pytest.mark.parametrize("token", ["cos", "add", np.add, np.cos, ALU["abs"], None, 1.0, math.exp, sys])
def test_what_is_no_activation_function_is_refused(token):
    with pytest.raises(OperatorError, match="not an activation function"):
        as_activation(token)


def test_the_refusal_proposes_a_name():
    with pytest.raises(OperatorError) as caught:
        as_activation("sigmiod")
    assert caught.value.remedy == "did you mean nl.sigmoid?"
