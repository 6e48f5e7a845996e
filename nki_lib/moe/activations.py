"""The gated activations of experts: what lies between the product with gate and up and the product with down.

Names, as the operators take them:
  swiglu          silu(gate) * up
  geglu           gelu(gate) * up, with the error function; geglu_tanh: the approximation with tanh
  clamped_swiglu  gate = min(gate, limit), up = clamp(up, -limit, limit), (up + 1) * gate * sigmoid(alpha * gate)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl

FUNCTIONS = {"swiglu": nl.silu, "geglu": nl.gelu, "geglu_tanh": nl.gelu_apprx_tanh}
CLAMPED = "clamped_swiglu"
ACTIVATIONS = (*FUNCTIONS, CLAMPED)


@dataclass(frozen=True)
class Channels:
    """What belongs to the channels of gate and up, as columns [m, 1] float32 in SBUF; None for 1 and for 0."""

    gate_scale: Any = None
    up_scale: Any = None
    gate_bias: Any = None
    up_bias: Any = None


NO_CHANNELS = Channels()


def gated(dst: Any, gate: Any, up: Any, name: str, alpha: float, limit: float, of: Any = NO_CHANNELS) -> None:
    """dst = the activation of gate and up, each scaled, then with its bias added.

    Dimensions: dst [m, n] in SBUF, any dtype; gate, up [m, n] float32, channels on the partitions, both may be in PSUM;
    `of`, their Channels. alpha and limit count for clamped_swiglu only.
    """
    if name == CLAMPED:
        clamped(dst, gate, up, alpha, limit, of)
        return
    bent = nl.ndarray(dst.shape, dtype=nl.float32, buffer=nl.sbuf)
    scale = 1.0 if of.gate_scale is None else of.gate_scale
    nisa.activation(dst=bent, op=FUNCTIONS[name], data=gate, scale=scale, bias=of.gate_bias)
    if of.up_scale is None and of.up_bias is None:
        nisa.tensor_tensor(dst=dst, data1=bent, data2=up, op=nl.multiply)
    elif of.up_bias is None:
        multiply_after(dst, up, nl.multiply, of.up_scale, bent)
    elif of.up_scale is None:
        multiply_after(dst, up, nl.add, of.up_bias, bent)
    else:
        whole = settle(up, of.up_scale, of.up_bias)
        nisa.tensor_tensor(dst=dst, data1=bent, data2=whole, op=nl.multiply)


def clamped(dst: Any, gate: Any, up: Any, alpha: float, limit: float, of: Any) -> None:
    """dst = (clamp(up, -limit, limit) + 1) * g * sigmoid(alpha * g), g = min(gate, limit). Dimensions: see `gated`.

    Pseudocode:
        g = min(gate * scale + bias, limit); s = sigmoid(alpha * g)
        u = min(max(up * scale + bias, -limit), limit)
        dst = (u + 1) * (g * s)
    """
    shape = dst.shape
    g = settle(gate, of.gate_scale, of.gate_bias, limit)
    bent = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=bent, op=nl.sigmoid, data=g, scale=alpha)
    nisa.tensor_tensor(dst=bent, data1=bent, data2=g, op=nl.multiply)
    u = settle(up, of.up_scale, of.up_bias, limit)
    nisa.tensor_scalar(dst=u, data=u, op0=nl.maximum, operand0=-limit)
    multiply_after(dst, u, nl.add, 1.0, bent)


def settle(data: Any, scale: Any, bias: Any, limit: float | None = None) -> Any:
    """min(data * scale + bias, limit) in SBUF. Dimensions: data [m, n], scale and bias [m, 1] -> [m, n] float32."""
    steps = []
    if scale is not None:
        steps.append((nl.multiply, scale))
    if bias is not None:
        steps.append((nl.add, bias))
    if limit is not None:
        steps.append((nl.minimum, limit))
    result = nl.ndarray(data.shape, dtype=nl.float32, buffer=nl.sbuf)
    source = data
    while steps:
        first, steps = steps[:2], steps[2:]
        second = first[1] if len(first) == 2 else (None, None)
        nisa.tensor_scalar(
            dst=result, data=source, op0=first[0][0], operand0=first[0][1], op1=second[0], operand1=second[1]
        )
        source = result
    return result


def multiply_after(dst: Any, data: Any, op: Any, operand: Any, factor: Any) -> None:
    """dst = (data op operand) * factor. Dimensions: dst, data, factor [m, n]; operand a number or [m, 1]."""
    nisa.scalar_tensor_tensor(dst=dst, data=data, op0=op, operand0=operand, op1=nl.multiply, operand1=factor)
