"""The published rows: what was measured, of which class it is, and whether a constant comes from it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).with_name("rows.csv")

CLASSES = {
    "probe": "instruction probes",
    "fixed": "kernels that fix their own order",
    "small": "small kernels: one tile, elementwise streams, tiled transposes",
    "compiler": "other kernels, ordered by a compiler",
    "bound": "upper bounds, not measurements",
}
CALIBRATION, HELD_OUT, EXCLUDED = "calibration", "held-out", "excluded"


@dataclass(frozen=True)
class Published:
    """One row of `rows.csv`.

    kind: a key of `CLASSES`.  trace: the optimisation trace it belongs to, if any.  use: "calibration" if a constant of
    the time model comes from it, "held-out" if none does, "excluded" if it is not re-created.  contested: whether
    published sources contradict it.  schedule, dge: how it was ordered, and how its DMA descriptors were made.
    evidence: why it is classed so, or excluded.
    """

    id: str
    source: str
    hardware: str
    kernel: str
    shape: str
    dtype: str
    metric: str
    value: float
    kind: str
    trace: str
    use: str
    contested: bool
    schedule: str
    dge: str
    evidence: str

    @property
    def target(self) -> str:
        """The generation it was measured on; rows that say two name the older first."""
        return self.hardware.split()[0].split("/")[0].split("-")[0]


def published() -> list[Published]:
    """All rows, in the order of the file."""
    with PATH.open(encoding="utf-8", newline="") as file:
        rows = [
            Published(**{**line, "value": float(line["value"]), "contested": line["contested"] == "yes"})
            for line in csv.DictReader(file)
        ]
    for row in rows:
        if row.kind not in CLASSES or row.use not in (CALIBRATION, HELD_OUT, EXCLUDED):
            raise ValueError(f"{PATH.name}: {row.id} has class {row.kind!r} and use {row.use!r}")
    return rows
