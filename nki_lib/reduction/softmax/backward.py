"""The gradient of softmax along the rows or the columns of a matrix. Letters: see `kernel.py`."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.lines import Lines
from nki_lib.common.tiles import column, spans

WHOLE = 4096  # the widest lines that are read once


@nki.jit
def softmax_backward(y: Any, grad: Any, columns: bool, dtype: str | None) -> Any:
    """(grad - sum of grad * y along the line) * y, in float32 and rounded once.

    Dimensions: y, grad [L, W], or [W, L] with columns -> the same shape, in `dtype`, by default that of y.

    Pseudocode:
        for each block of lines:
            load y and grad; of wide lines one part after the other
            Vector: products;  Scalar: their sum;  Vector: (grad - sum) * y
            store
    """
    out = nl.ndarray(y.shape, dtype=y.dtype if dtype is None else getattr(nl, dtype), buffer=nl.shared_hbm)
    values, grads, target = Lines(y, columns), Lines(grad, columns), Lines(out, columns)
    parts = spans(values.width, WHOLE)
    for block in values.blocks(min(values.width, WHOLE)):
        m, g = block[1:]
        sums = nl.ndarray((m, g, len(parts)), dtype=nl.float32, buffer=nl.sbuf)
        total = column(m, g)
        for p, span in enumerate(parts):
            held = values.load(block, *span), grads.load(block, *span)
            products = nl.ndarray(held[0].shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=products, data1=held[0], data2=held[1], op=nl.multiply)
            for i in range(g):
                line_sum(sums[:, i, p : p + 1], products[:, i, :])
        nisa.tensor_reduce(dst=total, data=sums, op=nl.add, axis=2)
        for span in parts:
            if len(parts) > 1:
                held = values.load(block, *span), grads.load(block, *span)
            result = nl.ndarray(held[0].shape, dtype=out.dtype, buffer=nl.sbuf)
            for i in range(g):
                nisa.scalar_tensor_tensor(
                    dst=result[:, i, :],
                    data=held[1][:, i, :],
                    op0=nl.subtract,
                    operand0=total[:, i : i + 1],
                    op1=nl.multiply,
                    operand1=held[0][:, i, :],
                )
            target.store(result, block, *span)
    return out


def line_sum(dst: Any, data: Any) -> None:
    """dst = the sum along every line, on the Scalar engine. Dimensions: dst [m, 1], data [m, f]."""
    nowhere = nl.ndarray((data.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(
        dst=nowhere.broadcast(1, data.shape[1]), op=nl.copy, data=data, reduce_op=nl.add, reduce_res=dst
    )
