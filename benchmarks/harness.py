"""How a row of the table is measured: both sides in turn in one process, the best of several rounds, then the ratio."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One measured figure. `at_most` says whether the bar is an upper or a lower bound."""

    name: str
    value: float
    unit: str
    bar: float
    at_most: bool
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether the bar is kept."""
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    def text(self) -> str:
        """The row for a terminal."""
        sign = "<=" if self.at_most else ">="
        mark = "ok" if self.reached else "MISSED"
        return f"{self.name:44}{self.value:12.3g} {self.unit:16}{sign} {self.bar:<10.3g}{mark:8}{self.note}"

    def record(self) -> dict[str, object]:
        """The row for a tool."""
        return {**asdict(self), "reached": self.reached}


def seconds(function: Callable[[], object], rounds: int = 7) -> float:
    """Best time of one call, after one warm-up."""
    function()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def ratio(function: Callable[[], object], reference: Callable[[], object], rounds: int = 9) -> float:
    """Median over rounds of time(function) / time(reference), each pair measured back to back."""
    function()
    reference()
    ratios = []
    for _ in range(rounds):
        start = time.perf_counter()
        reference()
        middle = time.perf_counter()
        function()
        end = time.perf_counter()
        ratios.append((end - middle) / (middle - start))
    return sorted(ratios)[len(ratios) // 2]
