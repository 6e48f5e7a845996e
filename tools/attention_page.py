"""nki_lib/attention/README.md: what the attention kernels take on the modelled chip, and how far from its bounds.

`python -m tools.attention_page` writes it (minutes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import nki
from interpreter.profile import Profile
from nki_lib.attention.flash_attention.backward import flash_attention_backward
from nki_lib.attention.flash_attention.kernel import flash_attention
from nki_lib.attention.flash_decode.kernel import flash_decode
from tools.library_pages import ENGINES, busiest, transfer
from tools.pages import ROOT, environment
from tools.readme import table

PAGE = ROOT / "nki_lib" / "attention" / "README.md"
LENGTHS = (512, 2048, 8192, 16384)
DEPTHS = (64, 128)
TARGETS = ("trn2", "trn3")
BATCHES = (1, 8, 64)
DECODE_KEYS = 8192
KEY_HEADS, ROWS = 8, 4


class Measured(NamedTuple):
    """One profile and its bound in microseconds."""

    profile: Profile
    bound: float

    def cells(self) -> tuple[str, ...]:
        """Time, utilisation per engine, bound and distance, as the table shows them."""
        engines = self.profile.engines
        used = (f"{engines[name].utilisation:.0%}" if name in engines else "-" for name in ENGINES.values())
        latency = self.profile.latency_us
        return f"{latency:,.0f}", *used, f"{self.bound:,.0f}", f"{latency / self.bound:.2f}x"


def forward(target: str, length: int, depth: int) -> Measured:
    """One head, causal."""
    x = np.zeros((length, depth), ml_dtypes.bfloat16)
    found = nki.profile(flash_attention, target=target)(x[None], x, x, depth**-0.5, True)
    return Measured(found, busiest(found))


def backward(target: str, length: int, depth: int) -> Measured:
    """The same the way back."""
    x = np.zeros((length, depth), ml_dtypes.bfloat16)
    lse = np.zeros((1, length), np.float32)
    call = (x[None], x, x, x[None], x[None], lse, depth**-0.5, True, 0)
    found = nki.profile(flash_attention_backward, target=target)(*call)
    return Measured(found, busiest(found))


def decode(target: str, depth: int) -> Measured:
    """One sequence: a launch is one."""
    cache = np.zeros((KEY_HEADS, DECODE_KEYS, depth), ml_dtypes.bfloat16)
    q = np.zeros((KEY_HEADS, ROWS, depth), ml_dtypes.bfloat16)
    length = np.full((1, 1), DECODE_KEYS, np.int32)
    found = nki.profile(flash_decode, target=target)(q, cache, cache, length, DECODE_KEYS, 1, depth**-0.5)
    return Measured(found, transfer(2 * cache.nbytes, target))


def training_rows() -> Iterator[tuple[Any, ...]]:
    """Forward and backward."""
    for name, measured in (("forward", forward), ("backward", backward)):
        for target in TARGETS:
            for depth in DEPTHS:
                for length in LENGTHS:
                    yield name, target, depth, f"{length:,}", *measured(target, length, depth).cells()


def decoding_rows() -> Iterator[tuple[Any, ...]]:
    """A batch is one launch after the other."""
    for target in TARGETS:
        for depth in DEPTHS:
            one = decode(target, depth)
            for batch in BATCHES:
                rest = one.cells()[1:]
                whole = f"{one.profile.latency_us * batch:,.0f}"
                yield target, depth, batch, whole, *rest[:-2], f"{one.bound * batch:,.0f}", rest[-1]


def main() -> None:
    """Write the page."""
    columns = ("us", *ENGINES, "bound", "distance")
    page = environment().get_template("attention_page.md.j2")
    training = table(("", "on", "D", "S", *columns), training_rows())
    decoding = table(("decode on", "D", "batch", *columns), decoding_rows())
    PAGE.write_text(page.render(training=training, decoding=decoding), encoding="utf-8")


if __name__ == "__main__":
    main()
