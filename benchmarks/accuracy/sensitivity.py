"""Which estimates matter: how far the predictions move when one constant of the time model is halved or doubled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from benchmarks.accuracy.cases import CASES, Case, Timed
from benchmarks.accuracy.rows import Published
from nki.target import Label, Target, get_target
from nki.target_dma import DmaTiming
from nki.target_timing import EngineTiming

LARGEST = 20_000
"""Instructions of the largest program that is timed again and again."""


@dataclass(frozen=True)
class Sensitivity:
    """One constant. `mean` and `worst`: by what factor, less one, predictions move, over rows and both changes.

    moved: how many of `rows` predictions move by more than a percent.
    """

    name: str
    values: str
    doc: str
    mean: float
    worst: float
    worst_row: str
    moved: int
    rows: int


def estimates() -> list[str]:
    """The numbers of the time model that are estimates on some generation and can be scaled."""
    rows = {row.name: row for row in Target.rows()}
    found = []
    for entry in (*fields(EngineTiming), *fields(DmaTiming)):
        labels = [rows[entry.name].fact(column).label for column in range(3)]
        whole = all(type(value) is int for value in rows[entry.name].values)
        if Label.ESTIMATE in labels and whole:
            found.append(entry.name)
    return found


def sensitivities(rows: Sequence[Published]) -> list[Sensitivity]:
    """All estimates that move a prediction, those that move them most first."""
    base = [
        (row, case, timed)
        for row in rows
        for case, timed in [_timed(row)]
        if len(timed.instructions) <= LARGEST
    ]
    found = [one for name in estimates() if (one := _sensitivity(name, base)) is not None]
    return sorted(found, key=lambda one: -one.mean)


def _timed(row: Published) -> tuple[Case, Timed]:
    case = CASES[row.id]()
    return case, case.timed(row.target, schedule=row.schedule, dge=row.dge)


def _sensitivity(name: str, base: Sequence[tuple[Published, Case, Timed]]) -> Sensitivity | None:
    moves: list[tuple[float, str]] = []
    for row, case, timed in base:
        target = get_target(row.target)
        if target.fact(name).label is not Label.ESTIMATE:
            continue
        before = case.figure(timed)
        value = getattr(target, name)
        for changed in (value // 2, value * 2):
            again = timed.timeline.again(replace(target, **{name: changed}), timed.timeline.schedule)
            after = case.figure(Timed(timed.program, again))
            moves.append((abs(math.log(after / before)), row.id))
    if not moves or max(moves)[0] == 0:
        return None
    worst, worst_row = max(moves)
    values = {generation: getattr(get_target(generation), name) for generation in ("trn1", "trn2", "trn3")}
    return Sensitivity(
        name,
        ", ".join(str(value) for value in values.values()),
        next(row.doc for row in Target.rows() if row.name == name),
        math.exp(sum(move for move, _ in moves) / len(moves)) - 1,
        math.exp(worst) - 1,
        worst_row,
        sum(move > 0.01 for move, _ in moves),
        len(moves),
    )
