"""Stacked bars: stretches of a whole laid side by side, in whole numbers that a template can place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from interpreter.profile.lanes import FULL


@dataclass(frozen=True)
class Part:
    """A piece of a stacked bar; `x` and `width` are parts of `FULL`."""

    x: int
    width: int
    swatch: str
    label: str


def stacked(stretches: Iterable[tuple[float, str, str]], whole: float) -> tuple[Part, ...]:
    """(amount, colour, label) triples side by side; pieces too thin to see are left out."""
    parts = []
    before = 0.0
    for amount, swatch, label in stretches:
        x = round(FULL * min(1.0, before / whole))
        before += amount
        width = round(FULL * min(1.0, before / whole)) - x
        if width > 0:
            parts.append(Part(x, width, swatch, label))
    return tuple(parts)
