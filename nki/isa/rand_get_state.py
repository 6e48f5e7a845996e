"""`nisa.rand_get_state`: save the state of a random number generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.dtypes import uint32
from nki.enums import engine as Engine
from nki.ir.instruction import Steps, engine_choice
from nki.ir.operands import ON_CHIP, TEXT, attribute, destination, optional
from nki.ir.program import Access, Shape
from nki.isa.export import instruction
from nki.isa.generator_state import GeneratorState


@instruction
class rand_get_state(GeneratorState):
    """dst[P, W] = the generator's state in the lanes that `dst` lies on: W is 6 on GpSimd, 24 on the Vector engine.

    The words of a generator are x, y, z, w, v and the counter of xorwow; the four of a Vector lane follow each other
    (the order is inferred). `nisa.rand_set_state` continues the stream from there. GpSimd has it from trn2 on, the
    Vector engine on trn3; GpSimd cannot write PSUM.
    Sources: nki.isa.rand_get_state; trainium3_arch.rst (XORWOW-based PRNG); semantics rule 121.
    """

    dst = destination("P F", ON_CHIP, frozenset({uint32}), doc="the state, one row per lane")
    engine = engine_choice(Engine.gpsimd, Engine.vector, default=Engine.gpsimd)
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def tile(self) -> Access:
        access: Access = self.dst
        return access

    def array_shapes(self) -> dict[str, Shape]:
        return {"dst": (self.dst.partitions, self.dst.free)}

    def semantics(self, a: Any) -> Steps:
        yield np.copyto, (a.dst, a.state(self.register()))
