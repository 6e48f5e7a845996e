"""What the chip would make of the demo's attention: predicted time, the load of each engine, and the bottleneck."""

from __future__ import annotations

import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np

import nki
from nki_lib.attention.flash_attention.kernel import flash_attention
from nki_lib.demo.model import Shape

TARGETS = ("trn2", "trn3")
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "dma")


def profile_lines(shape: Shape, page: Path) -> list[str]:
    """The account of one launch in bfloat16, for the terminal; the whole of it is written to `page`."""
    group = shape.heads // shape.key_heads
    q = np.zeros((group, shape.context, shape.depth), ml_dtypes.bfloat16)
    profiles = [
        nki.profile(flash_attention, target=target)(q, q[0], q[0], shape.depth**-0.5, True)
        for target in TARGETS
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    profiles[0].to_html(page)
    lines = [
        "",
        f"Predicted for one launch on the chip: bfloat16, {group} query heads, {shape.context} keys",
        "",
        f"{'':10}" + "".join(f"{target:>12}" for target in TARGETS),
        f"{'time':10}" + "".join(f"{profile.latency_us:9.1f} us" for profile in profiles),
    ]
    for name in ENGINES:
        used = "".join(f"{profile.engines[name].utilisation:11.0%} " for profile in profiles)
        lines.append(f"{name:10}{used}busy")
    notes = profiles[0].notes
    if notes:
        lines += ["", *textwrap.wrap(f"Bottleneck on {TARGETS[0]}: {notes[0]}", 100)]
    return [*lines, "", f"Timeline, waits and source lines: {page}"]
