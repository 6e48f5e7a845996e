"""Running a plan: bind the tensors from outside, then call what was prebound, in order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from interpreter.cores import run_cores
from interpreter.plan import Plan


def execute(plan: Plan, arrays: Mapping[str, np.ndarray], trips: list[list[int]] | None = None) -> None:
    """Run the plan on the given tensors: contiguous arrays by buffer name, results included (they are written).

    trips: receives for each core how often each loop on the device ran, see `nki.ir.order.executed`.
    Floating-point warnings are silenced: the chip has none.
    """
    with plan.lock, np.errstate(all="ignore"):
        for core in plan.trips:
            core.count(trips is not None)
        bind_external(plan, arrays)
        if plan.others:
            run_cores([plan.calls, *plan.others])
        else:
            for function, arguments in plan.calls:
                function(*arguments)
        if trips is not None:
            trips[:] = [core.counts for core in plan.trips]


def bind_external(plan: Plan, arrays: Mapping[str, np.ndarray]) -> None:
    """Point every window on an argument or a result at this call's arrays."""
    bases = {name: array.reshape(-1).view(np.uint8) for name, array in arrays.items()}
    make = np.ndarray
    for calls, index, position, name, dtype, shape, strides, offset in plan.rebindings:
        function, arguments = calls[index]
        window = make(shape, dtype, bases[name], offset, strides)
        calls[index] = (function, (*arguments[:position], window, *arguments[position + 1 :]))
