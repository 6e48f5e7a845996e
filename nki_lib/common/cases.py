"""What an operator's README shows: calls of its kernel whose time is predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Bound = Literal["engine", "bandwidth"]
"""What a time is compared with: the work of the busiest engine, or moving arguments and results once."""


@dataclass(frozen=True)
class Case:
    """One row of the table.

    label: sizes and dtype, as the table shows them. kernel: what is called. arguments: makes the positional arguments,
    NumPy arrays and constants; kwargs: the other ones. bytes: what must be moved, if not all arguments and results.
    targets: the generations that have what the kernel needs.
    """

    label: str
    kernel: Any
    arguments: Callable[[], tuple[Any, ...]]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    bound: Bound = "engine"
    bytes: int | None = None
    targets: tuple[str, ...] = ("trn2", "trn3")
