"""The elementwise part of the MLP's gradient; the products around it are `torch.ops.nki_lib.matmul`.

Letters:  R  rows    I  width of the hidden layer    m, n  rows and columns of a tile
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, spans, wide_like
from nki_lib.linear.mlp.activations import activate, derivative, product
from nki_lib.norm.blocks import Shared

PART = 1024  # columns at a time


@nki.jit
def mlp_backward(
    grad: Any, up: Any, gate: Any, up_bias: Any, gate_bias: Any, activation: str, limit: float | None
) -> Any:
    """The hidden layer again, and the gradients of the products with up and with gate.

    Dimensions: grad, the gradient of the hidden layer, up, gate, the products with both [R, I]; biases [I]; gate and
    biases may be None -> hidden, of up, of gate (with a gate) [R, I].

    Pseudocode:
        g = gate + its bias, u = up + its bias; both limited
        hidden = act(g) u, of up = dh act(g), of gate = dh u act'(g); 0 where a limit holds
        without a gate: hidden = act(u), of up = dh act'(u)
    """
    count = 2 if gate is None else 3
    outs = tuple([nl.ndarray(up.shape, dtype=up.dtype, buffer=nl.shared_hbm) for _ in range(count)])
    columns = spans(up.shape[1], PART)
    biases = Shared(up_bias, columns), Shared(gate_bias, columns)
    for part in columns:
        for start, stop in spans(up.shape[0], nl.tile_size.pmax):
            place = (slice(start, stop), slice(*part))
            u, u_open = limited(load(up[place]), biases[0].part(part, stop - start), limit, gate is not None)
            slope = load(grad[place])
            bent = wide_like(u)
            if gate is None:
                activate(bent, u, None, activation)
                of_up = product(product(slope, derivative(u, activation)), u_open)
                results = (bent, of_up)
            else:
                g, g_open = limited(load(gate[place]), biases[1].part(part, stop - start), limit, False)
                activate(bent, g, None, activation)
                of_up = product(product(slope, bent), u_open)
                of_gate = product(product(product(slope, u), derivative(g, activation)), g_open)
                results = (product(bent, u), of_up, of_gate)
            for i in range(count):
                rounded = nl.ndarray(u.shape, dtype=up.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=rounded, src=results[i])
                nisa.dma_copy(dst=outs[i][place], src=rounded)
    return outs


def limited(data: Any, bias: Any, limit: float | None, both_ways: bool) -> tuple[Any, Any]:
    """min(data + bias, limit), at least -limit if `both_ways`; and 1 where that changed nothing, None without a limit.

    Dimensions: data, bias [m, n], bias may be None -> [m, n] float32 twice.
    """
    moved = data
    if bias is not None:
        moved = wide_like(data)
        nisa.tensor_tensor(dst=moved, data1=data, data2=bias, op=nl.add)
    if limit is None:
        return moved, None
    result, unchanged = wide_like(data), wide_like(data)
    floor = (nl.maximum, -limit) if both_ways else (None, None)
    nisa.tensor_scalar(
        dst=result, data=moved, op0=nl.minimum, operand0=limit, op1=floor[0], operand1=floor[1]
    )
    nisa.tensor_tensor(dst=unchanged, data1=result, data2=moved, op=nl.equal)
    return result, unchanged
