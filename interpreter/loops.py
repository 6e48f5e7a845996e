"""Running the loops of a program: a loop is one call of the plan around its body, and the body is calls again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Trips:
    """How often each loop of a core was passed through, in the order in which loops were entered.

    Only collected while somebody wants the executed trace (`counting`).
    """

    def __init__(self) -> None:
        self.counting = False
        self.counts: list[int] = []

    def count(self, wanted: bool) -> None:
        """Begin a run, counting anew or not."""
        self.counting = wanted
        self.counts = []

    def enter(self) -> int:
        """A loop begins. Returns where its count stands."""
        self.counts.append(0)
        return len(self.counts) - 1


def run_all(calls: list[Call]) -> None:
    """Run calls in order."""
    for function, arguments in calls:
        function(*arguments)


def value_of(bound: int | np.ndarray) -> int:
    """A number, or what a register holds."""
    return bound if isinstance(bound, int) else int(bound[0])


def run_for(
    body: list[Call],
    counter: np.ndarray,
    bounds: tuple[int | np.ndarray, int | np.ndarray, int],
    trips: Trips | None,
) -> None:
    """Count from start to stop by step, with the counter in its register. `trips` is `None` if bounds are numbers."""
    passes = range(value_of(bounds[0]), value_of(bounds[1]), bounds[2])
    if trips is not None and trips.counting:
        trips.counts[trips.enter()] = len(passes)
    for value in passes:
        counter[0] = value
        for function, arguments in body:
            function(*arguments)


def run_while(body: list[Call], condition: np.ndarray, trips: Trips) -> None:
    """Run the body as long as the register is not 0, tested before each pass."""
    place = trips.enter() if trips.counting else None
    while condition[0]:
        for function, arguments in body:
            function(*arguments)
        if place is not None:
            trips.counts[place] += 1
