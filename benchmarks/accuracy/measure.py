"""Predicted against published, row by row, and what that says per class and per optimisation trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from benchmarks.accuracy.cases import CASES
from benchmarks.accuracy.rows import CLASSES, EXCLUDED, Published
from nki.target import Target

LEAST_VARIANTS = 4
"""Variants a trace must have for its order to say something."""

CLOSE = 1.05
"""Published times nearer to each other than this are one within the spread of repeated runs."""


@dataclass(frozen=True)
class Result:
    """One re-created row."""

    row: Published
    predicted: float

    @property
    def ratio(self) -> float:
        """Predicted over published."""
        return self.predicted / self.row.value

    @property
    def error(self) -> float:
        """|log ratio|, as a factor less one: 0.1 is ten percent off, to either side."""
        return math.exp(abs(math.log(self.ratio))) - 1


def is_made(row: Published) -> bool:
    """Whether a row is re-created."""
    return row.use != EXCLUDED


def measure(
    rows: Sequence[Published],
    machine: Callable[[str], str | Target] = str,
    tell: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Predict rows one after the other. `machine` turns the name of a generation into the one to predict for."""
    results = []
    for row in rows:
        case = CASES[row.id]()
        timed = case.timed(machine(row.target), schedule=row.schedule, dge=row.dge)
        results.append(Result(row, case.figure(timed)))
        tell(results[-1])
    return results


@dataclass(frozen=True)
class Summary:
    """The errors of one class."""

    kind: str
    count: int
    median: float
    worst: Result


def summaries(results: Sequence[Result]) -> list[Summary]:
    """Per class, in the order of `CLASSES`. Bounds have no error; rows that other sources contradict do not count."""
    found = []
    for kind in CLASSES:
        members = [result for result in results if result.row.kind == kind and not result.row.contested]
        if members and kind != "bound":
            worst = max(members, key=lambda result: result.error)
            found.append(Summary(kind, len(members), median(r.error for r in members), worst))
    return found


def kendall_tau(pairs: Sequence[tuple[float, float]], apart: float = 1.0) -> float:
    """Kendall's tau-b of (predicted, published): 1 if both have one order, -1 if they have opposite ones. Only pairs
    whose published values are a factor of at least `apart` from each other count."""
    agree = differ = tied_left = tied_right = 0
    for (a, x), (b, y) in combinations(pairs, 2):
        if (a == b and x == y) or max(x, y) < apart * min(x, y):
            continue
        if a == b:
            tied_left += 1
        elif x == y:
            tied_right += 1
        elif (a < b) == (x < y):
            agree += 1
        else:
            differ += 1
    ordered = agree + differ
    whole = math.sqrt((ordered + tied_left) * (ordered + tied_right))
    return (agree - differ) / whole if whole else 0.0


def traces(results: Sequence[Result]) -> dict[str, tuple[list[Result], float]]:
    """The results of each optimisation trace of enough variants, and Kendall's tau of their order."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.row.trace:
            found.setdefault(result.row.trace, []).append(result)
    return {
        name: (members, kendall_tau([(r.predicted, r.row.value) for r in members]))
        for name, members in sorted(found.items())
        if len(members) >= LEAST_VARIANTS
    }
