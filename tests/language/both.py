"""Running a kernel planned and eagerly: the results must have the same bits. Tests nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

i32 = np.int32
f32 = np.float32


def both(kernel: Any, *arrays: Any, target: str = "trn2", **options: Any) -> Any:
    """What the kernel gives back for these arrays, the same both ways."""
    planned = nki.simulate(kernel, target=target, eager=False, **options)(*[np.copy(a) for a in arrays])
    eager = nki.simulate(kernel, target=target, eager=True, **options)(*[np.copy(a) for a in arrays])
    one, other = (x if isinstance(x, tuple) else (x,) for x in (planned, eager))
    for first, second in zip(one, other):
        assert first.dtype == second.dtype and first.tobytes() == second.tobytes(), (first, second)
    return planned


def number(value: int) -> Any:
    """An argument that holds one integer."""
    return np.array([[value]], i32)


def register_of(tensor: Any) -> Any:
    """A register with the value of a [1, 1] argument."""
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(tensor))
    return register


def tile(shape: Any, value: float, dtype: Any = nl.float32, **where: Any) -> Any:
    """A tile full of one value."""
    made = nl.ndarray(shape, dtype, **where)
    nisa.memset(dst=made, value=value)
    return made


def add(dst: Any, value: float) -> None:
    """dst += value"""
    nisa.tensor_scalar(dst=dst, data=dst, op0=nl.add, operand0=value)
