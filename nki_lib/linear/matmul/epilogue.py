"""What happens to a tile of a product on its way out of PSUM: scales, bias, activation, one rounding."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

FUNCTIONS = {
    "relu": nl.relu,
    "gelu": nl.gelu,
    "gelu_tanh": nl.gelu_apprx_tanh,
    "silu": nl.silu,
    "sigmoid": nl.sigmoid,
    "tanh": nl.tanh,
}


def finished(total: Any, of_rows: Any, of_columns: Any, bias: Any, activation: str | None, dtype: Any) -> Any:
    """activation(total * of_rows * of_columns + bias) in SBUF, computed in float32 and rounded once to `dtype`.

    Dimensions: total [m, n] in PSUM, of_rows [m, 1], of_columns and bias [m, n], each of the three may be None
    -> [m, n].
    Every step is one instruction: the Vector engine multiplies by a scale of rows on the way to its next operand, the
    Scalar engine on the way into its function.
    """
    steps = [(nl.multiply, of_columns), (nl.add, bias)]
    steps = [(op, operand) for op, operand in steps if operand is not None]
    value = total
    for i, (op, operand) in enumerate(steps):
        last = activation is None and i == len(steps) - 1
        result = nl.ndarray(total.shape, dtype=dtype if last else nl.float32, buffer=nl.sbuf)
        if of_rows is None:
            nisa.tensor_tensor(dst=result, data1=value, data2=operand, op=op)
        else:
            nisa.scalar_tensor_tensor(
                dst=result, data=value, op0=nl.multiply, operand0=of_rows, op1=op, operand1=operand
            )
            of_rows = None
        value = result
    if steps and activation is None:
        return value
    result = nl.ndarray(total.shape, dtype=dtype, buffer=nl.sbuf)
    if activation is not None:
        scale = 1.0 if of_rows is None else of_rows
        nisa.activation(dst=result, op=FUNCTIONS[activation], data=value, scale=scale)
    elif of_rows is not None:
        nisa.tensor_scalar(dst=result, data=value, op0=nl.multiply, operand0=of_rows)
    else:
        nisa.tensor_copy(dst=result, src=value)
    return result
