"""The names of the engines and of the reasons for waiting, as people read them. Nothing here computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from interpreter.timing import timeline

DMA: Final = "dma"

TITLES: Final = {
    "tensor": "Tensor",
    "vector": "Vector",
    "scalar": "Scalar",
    "gpsimd": "GpSimd",
    "sync": "Sync",
    DMA: "DMA",
}
"""Engines in the order in which they are shown."""

DMA_REASONS: Final = frozenset(
    {timeline.ISSUE, timeline.DMA_QUEUE, timeline.DMA_LATENCY, timeline.DMA_BANDWIDTH}
)
"""What the time from starting a DMA to its data being there consists of."""

COMPUTE: Final = ("tensor", "vector", "scalar", "gpsimd")

GROUPS: Final = {
    "data": "waits for data or a free buffer",
    "dma": "waits for the DMA",
    "engine": "waits for another engine",
    "resource": "waits for a port, bank, table or warm-up",
    "idle": "nothing left to do",
}
"""The colours of waiting: what is in the way."""


_WAITING: Final = {
    timeline.EXECUTE: ("idle", "execution"),
    timeline.DATA: ("data", "data"),
    timeline.BUFFER: ("data", "a buffer still in use"),
    timeline.ORDER: ("engine", "the order the kernel asks for"),
    timeline.SEMAPHORE: ("engine", "semaphores"),
    timeline.ENGINE: ("engine", "its own engine"),
    timeline.ISSUE: ("dma", "a DMA to be issued"),
    timeline.DMA_QUEUE: ("dma", "a DMA queue"),
    timeline.DMA_LATENCY: ("dma", "DMA latency"),
    timeline.DMA_BANDWIDTH: ("dma", "DMA bandwidth"),
    timeline.TABLE_LOAD: ("resource", "activation tables"),
    timeline.PORT_CONFLICT: ("resource", "a shared port"),
    timeline.BANK_CONFLICT: ("resource", "a PSUM bank"),
    timeline.WARM_UP: ("resource", "the Tensor engine to warm up"),
    timeline.LOOP: ("engine", "the turn of a loop"),
    timeline.BARRIER: ("engine", "the other core"),
}
"""For each reason of the time model: its group, and the words that follow "waits for"."""


def reason_group(reason: str) -> str:
    """What is in the way: a key of `GROUPS`."""
    return _WAITING[reason][0]


def reason_text(reason: str) -> str:
    """A reason in words, to follow "waits for"."""
    return _WAITING[reason][1]


def title(unit: str) -> str:
    """`Tensor` for `tensor`."""
    return TITLES.get(unit, unit)


def in_order(units: Iterable[str]) -> list[str]:
    """Engines in the order in which they are shown."""
    order = list(TITLES)
    return sorted(set(units), key=lambda unit: (order.index(unit) if unit in order else len(order), unit))


def time_text(ps: float) -> str:
    """A duration in the unit that reads best: `850 ns`, `12.4 µs`, `3.21 ms`.

    >>> time_text(12_412_000)
    '12.4 µs'
    """
    for unit, size in (("ms", 1e9), ("µs", 1e6)):
        if ps >= size:
            value = ps / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{ps / 1e3:.0f} ns"


def share_text(part: float, whole: float = 1) -> str:
    """A share in percent: `62%`, `3.4%`, `<0.1%`."""
    percent = 100 * part / whole if whole else 0
    if 0 < percent < 0.1:
        return "<0.1%"
    return f"{percent:.1f}%" if 0 < percent < 9.95 else f"{percent:.0f}%"


def bytes_text(nbytes: float) -> str:
    """A size: `512 B`, `64 KiB`, `2.5 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return (
                f"{nbytes:.0f} {unit}" if nbytes == int(nbytes) or nbytes >= 100 else f"{nbytes:.1f} {unit}"
            )
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"
