"""`nisa.set_rng_seed`: start the random numbers of the Vector engine anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.effects import VECTOR_PRNG, spread_seed
from nki.ir.instruction import Steps
from nki.ir.operands import ON_CHIP, TEXT, attribute, optional, source
from nki.ir.program import Shape
from nki.isa.apply import Array, bits
from nki.isa.costs import elementwise_phases
from nki.isa.export import instruction
from nki.isa.random_numbers import RandomInstruction
from nki.target import Target


@instruction
class set_rng_seed(RandomInstruction):
    """Seed the Vector engine's generators in all lanes with the 32 bits of src_seeds[1, 1].

    The same seed gives the same numbers of `nisa.rng` on the Vector engine, and of `nisa.rand2` and `nisa.dropout`.
    GpSimd's generators are not touched. How the seed is spread over the lanes is not documented.
    Sources: nki.isa.set_rng_seed; semantics rules 121, 123.
    """

    engines = (Engine.vector,)
    layout = "declared"

    src_seeds = source(
        "1 1",
        ON_CHIP,
        frozenset({dtypes.int32, dtypes.uint32, dtypes.float32}),
        doc="the seed, one 32-bit value",
    )
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {"src_seeds": (1, 1)}

    def semantics(self, a: Any) -> Steps:
        yield _seed, (bits(a.src_seeds), a.state(VECTOR_PRNG, everywhere=True))

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: the least interval of the engine; no figure is published."""
        return elementwise_phases(self, target, self.src_seeds, (), modes=False)


def _seed(seed: Array, state: Array) -> None:
    np.copyto(state, spread_seed(int(seed[0, 0]), *state.shape))
