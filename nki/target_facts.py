"""The vocabulary of the hardware tables: what a fact is and how a table states one.

`target_limits`, `target_timing` and `target_dma` hold the tables, `target` joins them to the three machines.
A table is a class whose fields are rows: name and type on the left, then what the number means, its value on
trn1, trn2 and trn3 (one value where the three agree), how we know it, and where it is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Union

GENERATIONS: Final = ("trn1", "trn2", "trn3")

KIB: Final = 1024
GIB: Final = 1024 * 1024 * 1024
NS: Final = 1_000  # picoseconds
US: Final = 1_000_000  # picoseconds
GB_PER_S: Final = 1_000  # bytes per microsecond


class Label(Enum):
    """How a number is known."""

    PUBLISHED = "published"
    """Stated in the text or a table of a public document."""
    DERIVED = "derived"
    """Arithmetic on published numbers, or read off a published picture."""
    ESTIMATE = "estimate"
    """Our guess; the source text says why this value."""


PUBLISHED: Final = Label.PUBLISHED
DERIVED: Final = Label.DERIVED
ESTIMATE: Final = Label.ESTIMATE

# Public documents, by file name in the repository aws-neuron/aws-neuron-sdk.
TRN1_ARCH: Final = "trainium_inferentia2_arch.rst"
TRN2_ARCH: Final = "trainium2_arch.rst"
TRN3_ARCH: Final = "trainium3_arch.rst"
ARCH: Final = f"{TRN1_ARCH}, {TRN2_ARCH}, {TRN3_ARCH}"
ISA_API: Final = "nki/api/nki/isa/__init__.py (release 0.6)"
COLLECTIVES_API: Final = "nki/api/nki/collectives/__init__.py (release 0.6)"
ISA_API_2_26: Final = "nki.isa API text of SDK 2.26 (the last with cycle costs)"
PERF_GUIDE: Final = "nki_perf_guide.rst"
DMA_GUIDE: Final = "nki-dma-bandwidth-guide.rst"
DMA_OVERVIEW: Final = "nki-dma-overview.rst"
DGE_GUIDE: Final = "nki-dge.rst"
TUTORIAL: Final = "kernel-optimization.rst"
LANGUAGE_GUIDE: Final = "nki-language-guide.rst"
THROTTLING: Final = "neuron-explorer/overview-summary-page.rst, Understanding throttling"

LabelColumns = Union[Label, "tuple[Label, Label, Label]"]


@dataclass(frozen=True)
class Fact:
    """One number of one machine: its value, how we know it, where it is written, what it means."""

    value: Any
    label: Label
    source: str
    doc: str = ""


@dataclass(frozen=True)
class Row:
    """One line of a table: the same number on trn1, trn2 and trn3, side by side."""

    name: str
    doc: str
    values: tuple[Any, Any, Any]
    labels: tuple[Label, Label, Label]
    source: str

    def fact(self, column: int) -> Fact:
        """The entry of one generation, by its position in `GENERATIONS`."""
        return Fact(self.values[column], self.labels[column], self.source, self.doc)


def row(doc: str, value: Any, label: LabelColumns, source: str) -> Any:
    """State a fact as a field of a table; `value` and `label` may be triples for trn1, trn2 and trn3."""
    return field(metadata={"row": (doc, _columns(value), _columns(label), source)})


def _columns(value: Any) -> tuple[Any, Any, Any]:
    """Three columns from a triple, or from one value that holds for all generations."""
    if not isinstance(value, tuple):
        return (value, value, value)
    trn1, trn2, trn3 = value
    return (trn1, trn2, trn3)
