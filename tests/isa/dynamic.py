"""Running kernels with dynamic addresses every way they can be run. Tests nothing.

`everywhere(kernel, *arrays)` gives the outputs of the planned run, after checking that eager mode and a second call of
the same plan give the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki


def everywhere(kernel: Any, *arrays: np.ndarray, target: str = "trn2") -> Any:
    """The planned outputs; eager mode and a repeated call must agree. Arguments that are written are copied first."""
    planned = nki.simulate(kernel, target=target)
    given = [array.copy() for array in arrays]
    first = planned(*given)
    for again in (planned, nki.simulate(kernel, target=target, eager=True)):
        copies = [array.copy() for array in arrays]
        for one, other in zip(_flat(first), _flat(again(*copies))):
            assert one.dtype == other.dtype and one.tobytes() == other.tobytes()
        for one, other in zip(given, copies):
            assert one.tobytes() == other.tobytes()
    return first


def _flat(result: Any) -> tuple[np.ndarray, ...]:
    return result if isinstance(result, tuple) else (result,)


def column(*values: int, dtype: Any = np.uint32) -> np.ndarray:
    """An index tensor, one value per partition."""
    return np.array(values, np.int64).astype(dtype).reshape(-1, 1)


def one(value: int, dtype: Any = np.int32) -> np.ndarray:
    """An index tensor with one value."""
    return np.array([[value]], np.int64).astype(dtype)
