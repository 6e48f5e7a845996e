"""The random number generators of the Vector and GpSimd engines, and what the instructions that use them share.

The documentation names the algorithms, an LFSR before trn3 and xorwow since, but neither their constants nor how seeds
and elements are dealt out, so the numbers here are INFERRED and differ from those of a chip. What is documented holds:
each lane has a generator of its own, the same seed gives the same stream, and the trn3 Vector engine runs four xorwow
generators a lane, of 6 words each. Their states live in `nki/ir/effects.py` (semantics rule 121).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.ir.builder import Builder
from nki.ir.effects import GPSIMD_PRNG, VECTOR_PRNG, XORWOW_WORDS
from nki.ir.instruction import Steps
from nki.isa.apply import Array
from nki.isa.compute import ComputeInstruction

FRACTION_BITS = 24  # random bits of a number in [0, 1): all that float32 has room for
WEYL_STEP = np.uint32(362437)
_WORD_BITS = 32


class RandomInstruction(ComputeInstruction, abstract=True):
    """An instruction on the generator of its engine."""

    states = (VECTOR_PRNG, GPSIMD_PRNG)
    generation = nc_version.gen2

    def resolve(self, builder: Builder) -> None:
        self.generation = builder.target.version
        self.__dict__["states"] = (self.register(),)  # of the two, only that of the engine chosen

    def register(self) -> str:
        """Name of the state that this instruction works on."""
        return GPSIMD_PRNG if self.engine is Engine.gpsimd else VECTOR_PRNG

    def words(self, a: Any, lanes: int, count: int) -> Steps:
        """Fill `a.words`, uint32[lanes, count], with the next random words of each lane."""
        a.words = a.scratch((lanes, count), np.uint32)
        state = a.state(self.register())
        if self.engine is not Engine.gpsimd and self.generation < nc_version.gen4:
            yield xorshift, (state, a.words)
        else:
            yield xorwow, (state, a.words)

    def fractions(self, a: Any, lanes: int, count: int) -> Steps:
        """Fill `a.fractions`, float32[lanes, count], with multiples of 2^-24 in [0, 1)."""
        yield from self.words(a, lanes, count)
        a.fractions = a.scratch((lanes, count))
        yield np.right_shift, (a.words, np.uint32(_WORD_BITS - FRACTION_BITS), a.words)
        yield np.copyto, (a.fractions, a.words, "unsafe")
        yield np.multiply, (a.fractions, np.float32(2.0**-FRACTION_BITS), a.fractions)


def xorshift(state: Array, words: Array) -> None:
    """The generator before trn3: a 32-bit shift register with feedback, one step a word, in state[:, 0].

    Constants of Marsaglia, "Xorshift RNGs" (2003); period 2^32 - 1.
    """
    x = state[:, 0].copy()
    shifted = np.empty_like(x)
    for column in words.T:
        for shift, count in ((np.left_shift, 13), (np.right_shift, 17), (np.left_shift, 5)):
            shift(x, np.uint32(count), shifted)
            np.bitwise_xor(x, shifted, x)
        column[:] = x
    state[:, 0] = x


def xorwow(state: Array, words: Array) -> None:
    """xorwow of Marsaglia, "Xorshift RNGs" (2003), with state[:, 6 g : 6 g + 6] of the generators g side by side.

    The words of a generator are x, y, z, w, v and the counter d. Element i comes from generator i modulo their number;
    if the elements do not divide, the last step of the others is lost.
    """
    lanes, count = words.shape
    planes = np.ascontiguousarray(state.reshape(lanes, -1, XORWOW_WORDS).transpose(2, 0, 1))
    x, y, z, w, v, d = planes
    mixed, shifted = np.empty_like(x), np.empty_like(x)
    steps = np.empty((-(-count // x.shape[1]), *x.shape), np.uint32)
    for out in steps:
        np.right_shift(x, np.uint32(2), mixed)
        np.bitwise_xor(mixed, x, mixed)
        np.left_shift(mixed, np.uint32(1), shifted)
        np.bitwise_xor(mixed, shifted, mixed)
        x, y, z, w, last = y, z, w, v, x
        np.left_shift(v, np.uint32(4), shifted)
        np.bitwise_xor(mixed, shifted, mixed)
        np.bitwise_xor(mixed, v, last)
        v = last
        np.add(d, WEYL_STEP, d)
        np.add(v, d, out)
    state[...] = np.stack((x, y, z, w, v, d), axis=-1).reshape(state.shape)
    words[...] = steps.transpose(1, 0, 2).reshape(lanes, -1)[:, :count]
