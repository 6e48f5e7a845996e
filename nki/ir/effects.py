"""The closed list of what an instruction can do besides writing its operands.

The machine implements these, never a mnemonic. An engine keeps its registers between instructions; a fresh run starts
from `initial`, so that the same program gives the same values every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCALAR_ACCUMULATOR = "scalar_accumulator"
"""Accumulator registers of the Scalar engine, shared by the activation family."""

VECTOR_ACCUMULATOR = "vector_accumulator"
"""Accumulator registers of the Vector engine, shared by its reducing instructions."""

VECTOR_PRNG = "vector_prng"
"""State of the Vector engine's random number generator."""

GPSIMD_PRNG = "gpsimd_prng"
"""State of the GpSimd engine's random number generator."""


@dataclass(frozen=True)
class State:
    """Registers of an engine: `words` of one type for every partition.

    seed: what random number generators are seeded with in a fresh run; without one the registers start at zero.
    """

    dtype: np.dtype[Any]
    words: int = 1
    seed: int | None = None

    def initial(self, partitions: int) -> np.ndarray:
        """What the registers hold at the start of a run, [partitions, words]."""
        if self.seed is None:
            return np.zeros((partitions, self.words), self.dtype)
        return spread_seed(self.seed, partitions, self.words)


XORWOW_WORDS = 6
"""Words of one xorwow generator: five that are shifted and a counter (trainium3_arch.rst)."""

VECTOR_STREAMS = 4
"""Generators that a lane of the Vector engine runs side by side from trn3 on (trainium3_arch.rst)."""

STATES = {
    SCALAR_ACCUMULATOR: State(np.dtype(np.float32)),
    VECTOR_ACCUMULATOR: State(np.dtype(np.float32)),
    VECTOR_PRNG: State(np.dtype(np.uint32), VECTOR_STREAMS * XORWOW_WORDS, seed=0),
    GPSIMD_PRNG: State(np.dtype(np.uint32), XORWOW_WORDS, seed=1),
}
"""Every state by its name."""

PRINT = "print"
"""Shows a tensor to the user; keeps its place among the instructions that touch the tensor."""

EFFECTS = (PRINT,)


def spread_seed(seed: int, partitions: int, words: int) -> np.ndarray:
    """uint32[partitions, words] that differ from each other and from those of any other seed; never 0.

    How the chip spreads one 32-bit seed over its lanes is not documented. Here the bits of seed and position are
    mixed by the finalizer of MurmurHash3, a bijection.
    """
    position = np.arange(1, partitions * words + 1, dtype=np.uint64).reshape(partitions, words)
    mixed = _mix(_mix(np.full_like(position, seed % _RANGE)) + position * np.uint64(_GOLDEN))
    return np.maximum(mixed, np.uint64(1)).astype(np.uint32)


_RANGE = 1 << 32
_GOLDEN = 0x9E3779B9


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """MurmurHash3's finalizer of 32-bit numbers held in 64 bits."""
    low = np.uint64(_RANGE - 1)
    value = np.bitwise_and(value, low)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = ((value ^ (value >> np.uint64(shift))) * np.uint64(factor)) & low
    return value ^ (value >> np.uint64(16))


RENDEZVOUS = "rendezvous"
"""The instruction waits until the other core has come to its counterpart, and may exchange data with it."""


def meet(key: object, give: object, take: object, instruction: object) -> None:
    """What a meeting instruction's semantics yields instead of a computation: the machine that runs several cores
    recognises this function and never calls it. Instructions with one `key` meet; `give` of each is copied into `take`
    of the other (both `None` for a mere barrier)."""
    raise AssertionError("a rendezvous was run on a machine with one core")


meet.reads_first = True  # type: ignore[attr-defined] # what is given is copied before anything is taken
