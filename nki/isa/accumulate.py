"""The accumulator registers of an engine: folding a tile into them, and the commands that say where the fold starts.

The activation family folds into those of the Scalar engine, reducing instructions into those of the Vector engine.
They hold float32, one value per partition, and live on between instructions (semantics rules 72, 74, 75).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import reduce_cmd as ReduceCmd
from nki.ir.instruction import Steps
from nki.isa.alu import AluOp
from nki.isa.apply import Array, float_operand, fold


def accumulate(
    a: Any, registers: Array, operator: AluOp, command: ReduceCmd, values: Array, start: Any = None
) -> Steps:
    """Fold the float32 `values` over all free axes into `registers`, a column that broadcasts against them.

    idle: nothing.  reset: the identity.  reset_reduce: the fold.  reduce: what the registers hold, then the fold.
    load_reduce: `start` (a number or a column), then the fold.
    """
    if command is ReduceCmd.idle:
        return
    if command is ReduceCmd.reset:
        yield np.copyto, (registers, float_operand(operator.identity))
        return
    axes = tuple(range(1, values.ndim))
    if command is ReduceCmd.reset_reduce:
        yield fold(operator, values, axes, registers)
        return
    folded = a.scratch(registers.shape)
    yield fold(operator, values, axes, folded)
    before = registers if command is ReduceCmd.reduce else float_operand(start)
    yield operator.function, (before, folded, registers)
