"""The activations of the MLP, and their derivatives; `limit` bounds what goes in.

Names, as the operator takes them: silu, gelu (with the error function), gelu_tanh (its approximation), relu, relu2 (the
square of relu). With a limit, gate = min(gate, limit) and up = min(max(up, -limit), limit), biases included.
"""

from __future__ import annotations

import math
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import wide_like

FUNCTIONS = {
    "silu": nl.silu,
    "gelu": nl.gelu,
    "gelu_tanh": nl.gelu_apprx_tanh,
    "relu": nl.relu,
    "relu2": nl.relu,
}
DERIVATIVES = {"silu": nl.silu_dx, "gelu": nl.gelu_dx}
SLOPE = math.sqrt(2 / math.pi)  # gelu_tanh is 0.5 x (1 + tanh(SLOPE (x + CUBE x^3)))
CUBE = 0.044715


def activate(dst: Any, data: Any, bias: Any, name: str) -> None:
    """dst = act(data + bias). Dimensions: dst, data [m, n], data may be in PSUM; bias [m, 1] or None."""
    target = wide_like(dst) if name == "relu2" else dst
    nisa.activation(dst=target, op=FUNCTIONS[name], data=data, bias=bias)
    if name == "relu2":
        nisa.activation(dst=dst, op=nl.square, data=target)


def gated(dst: Any, gate: Any, up: Any, biases: Any, name: str, limit: float | None) -> None:
    """dst = act(gate + its bias) * (up + its bias).

    Dimensions: dst [m, n] in SBUF; gate, up [m, n] float32, may be in PSUM; biases, of gate and of up, [m, 1] or None.
    """
    gate_bias, up_bias = biases
    bent = wide_like(dst)
    if limit is not None:
        gate, gate_bias = at_most(gate, gate_bias, limit), None
        up, up_bias = at_most(up, up_bias, limit), None
    activate(bent, gate, gate_bias, name)
    if limit is not None:
        op, operand = nl.maximum, -limit
    elif up_bias is not None:
        op, operand = nl.add, up_bias
    else:
        nisa.tensor_tensor(dst=dst, data1=bent, data2=up, op=nl.multiply)
        return
    nisa.scalar_tensor_tensor(dst=dst, data=up, op0=op, operand0=operand, op1=nl.multiply, operand1=bent)


def at_most(data: Any, bias: Any, limit: float) -> Any:
    """min(data + bias, limit) in SBUF. Dimensions: data [m, n], bias [m, 1] or None -> [m, n] float32."""
    result = wide_like(data)
    if bias is None:
        nisa.tensor_scalar(dst=result, data=data, op0=nl.minimum, operand0=limit)
    else:
        nisa.tensor_scalar(dst=result, data=data, op0=nl.add, operand0=bias, op1=nl.minimum, operand1=limit)
    return result


def scaled(data: Any, scale: Any, bias: Any) -> Any:
    """data * scale + bias in SBUF. Dimensions: data [m, n], scale, bias [m, 1], bias may be None -> [m, n] float32."""
    result = wide_like(data)
    op = None if bias is None else nl.add
    nisa.tensor_scalar(dst=result, data=data, op0=nl.multiply, operand0=scale, op1=op, operand1=bias)
    return result


def product(left: Any, right: Any) -> Any:
    """left * right in float32, or left if there is no right. Dimensions: [m, n] each."""
    if right is None:
        return left
    result = wide_like(left)
    nisa.tensor_tensor(dst=result, data1=left, data2=right, op=nl.multiply)
    return result


def derivative(data: Any, name: str) -> Any:
    """act'(data). Dimensions: [m, n] in SBUF -> the same, float32."""
    result = wide_like(data)
    if name in DERIVATIVES:
        nisa.activation(dst=result, op=DERIVATIVES[name], data=data)
    elif name == "relu":
        nisa.tensor_scalar(dst=result, data=data, op0=nl.greater, operand0=0.0)
    elif name == "relu2":
        nisa.tensor_scalar(dst=result, data=data, op0=nl.maximum, operand0=0.0, op1=nl.multiply, operand1=2.0)
    else:
        derivative_of_gelu_tanh(result, data)
    return result


def derivative_of_gelu_tanh(dst: Any, x: Any) -> None:
    """dst = 0.5 (1 + t) + 0.5 x (1 - t^2) SLOPE (1 + 3 CUBE x^2), t = tanh(SLOPE x (1 + CUBE x^2)). All [m, n]."""
    square, inner, t, outer, rise = (wide_like(x) for _ in range(5))
    nisa.activation(dst=square, op=nl.square, data=x)
    nisa.tensor_scalar(dst=inner, data=square, op0=nl.multiply, operand0=CUBE, op1=nl.add, operand1=1.0)
    nisa.tensor_tensor(dst=inner, data1=inner, data2=x, op=nl.multiply)
    nisa.activation(dst=t, op=nl.tanh, data=inner, scale=SLOPE)
    factor = 1.5 * CUBE * SLOPE
    nisa.tensor_scalar(
        dst=rise, data=square, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=0.5 * SLOPE
    )
    nisa.tensor_tensor(dst=rise, data1=rise, data2=x, op=nl.multiply)
    nisa.activation(dst=outer, op=nl.square, data=t)
    nisa.tensor_scalar(dst=outer, data=outer, op0=nl.multiply, operand0=-1.0, op1=nl.add, operand1=1.0)
    nisa.tensor_tensor(dst=outer, data1=outer, data2=rise, op=nl.multiply)
    nisa.scalar_tensor_tensor(dst=dst, data=t, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=outer)
    nisa.tensor_scalar(dst=dst, data=dst, op0=nl.add, operand0=0.5)
