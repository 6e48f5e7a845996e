"""`nisa.rng`: random bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.ir.cost import Phase
from nki.ir.instruction import Steps, engine_choice
from nki.ir.operands import INTEGERS, ON_CHIP, TEXT, attribute, destination, optional
from nki.ir.program import Shape
from nki.isa.apply import bits
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.isa.random_numbers import RandomInstruction
from nki.target import Target


@instruction
class rng(RandomInstruction):
    """dst[P, F] = random bits: the low bits of one 32-bit random word an element.

    Each engine and each partition has a generator of its own: an LFSR on the Vector engine before trn3, xorwow on it
    since, and on GpSimd. The numbers are not those of a chip, whose algorithms are not documented bit by bit, but
    reproducible: a run starts from fixed seeds, and `nisa.set_rng_seed` or `nisa.rand_set_state` fix a stream.
    Sources: nki.isa.rng; trainium3_arch.rst; semantics rule 121.
    """

    layout = "declared"

    dst = destination("P F", ON_CHIP, INTEGERS, doc="the random bits")
    engine = engine_choice(Engine.vector, Engine.gpsimd, default=Engine.vector)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {"dst": (self.dst.partitions, self.dst.free)}

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        if engine is Engine.gpsimd and target.version is nc_version.gen2:
            return "the trn1 GpSimd engine has no random numbers; use engine=nisa.engine.vector"
        return None

    def semantics(self, a: Any) -> Steps:
        yield from self.words(a, self.dst.partitions, self.dst.free)
        yield np.copyto, (bits(a.dst), a.words, "unsafe")

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: one random word per lane and cycle; no figure is published."""
        return elementwise_phases(self, target, self.dst, (), modes=False)
