"""What can be said about a launch before the kernel runs: arguments and core counts that only the real tools refuse."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nki.ir.builder import Builder
from nki.span import Span

if TYPE_CHECKING:
    from nki.arguments import Arguments

LOGICAL_CORES = "NEURON_LOGICAL_NC_CONFIG"


def note_launch(builder: Builder, arguments: Arguments, span: Span) -> None:
    """Record notes on the program: lists among the arguments (rule 142), and a launch on other than the configured
    number of cores (rule 174)."""
    for name, value in arguments.structure.items():
        if isinstance(value, list):
            text = (
                f"argument `{name}` is a list; the NKI compiler takes tuples only: pass {name}=tuple({name})"
            )
            builder.warn("list-argument", "note", text, span)
    configured = os.environ.get(LOGICAL_CORES, "").strip()
    cores = builder.grid or 1
    if configured and configured != str(cores):
        text = (
            f"launched on {cores} core{'s' if cores > 1 else ''} while {LOGICAL_CORES}={configured}; on a chip the two "
            f"must agree: launch with kernel[{configured}](...)"
        )
        builder.warn("logical-cores", "note", text, span)
