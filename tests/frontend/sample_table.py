"""The table of sample functions, filled by `samples` and `sample_classes`. Tests nothing by itself.

Each entry is `(function, tuple of argument tuples)`; some calls raise on purpose. `TILE` and `settings` are globals
that the samples read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TILE = 4
settings = {"limit": 3}
SAMPLES: list[tuple[Callable[..., Any], tuple[tuple[Any, ...], ...]]] = []


def sample(*calls: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Enter the function into the table, unchanged."""

    def enter(fn: Any) -> Any:
        SAMPLES.append((fn, calls))
        return fn

    return enter
