"""`nisa.rand_set_state`: set the state of a random number generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.dtypes import uint32
from nki.enums import engine as Engine
from nki.ir.instruction import Steps, engine_choice
from nki.ir.operands import SBUF, TEXT, attribute, optional, source
from nki.ir.program import Access, Shape
from nki.isa.export import instruction
from nki.isa.generator_state import GeneratorState


@instruction
class rand_set_state(GeneratorState):
    """The generator's state in the lanes that `src_seeds` lies on = src_seeds[P, W]: W is 6 on GpSimd, 24 on Vector.

    Other lanes keep theirs. The words are those that `nisa.rand_get_state` saves; they are taken as they are, so the
    first five of a generator should not all be 0. GpSimd has it from trn2 on, the Vector engine on trn3.
    Sources: nki.isa.rand_set_state; trainium3_arch.rst (XORWOW-based PRNG); semantics rule 121.
    """

    src_seeds = source("P F", SBUF, frozenset({uint32}), doc="the state, one row per lane")
    engine = engine_choice(Engine.gpsimd, Engine.vector, default=Engine.gpsimd)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def tile(self) -> Access:
        access: Access = self.src_seeds
        return access

    def array_shapes(self) -> dict[str, Shape]:
        return {"src_seeds": (self.src_seeds.partitions, self.src_seeds.free)}

    def semantics(self, a: Any) -> Steps:
        yield np.copyto, (a.state(self.register()), a.src_seeds)
