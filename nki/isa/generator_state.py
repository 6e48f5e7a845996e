"""What `nisa.rand_get_state` and `nisa.rand_set_state` share: how many words of state an engine has in each lane."""

from __future__ import annotations

from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.ir.cost import Phase
from nki.ir.effects import GPSIMD_PRNG, STATES, VECTOR_PRNG
from nki.ir.program import Access
from nki.isa.costs import elementwise_phases
from nki.isa.random_numbers import RandomInstruction
from nki.target import Target


class GeneratorState(RandomInstruction, abstract=True):
    """An instruction that moves the state of a generator: 6 words a lane on GpSimd, 24 on the trn3 Vector engine."""

    since = nc_version.gen3
    layout = "declared"

    def tile(self) -> Access:
        """The tile with the words."""
        raise NotImplementedError

    def compute(self) -> str:
        return "raw"

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        if engine is Engine.vector and target.version < nc_version.gen4:
            return f"the state of the Vector engine is out of reach on {target.name}; use engine=nisa.engine.gpsimd"
        words = STATES[GPSIMD_PRNG if engine is Engine.gpsimd else VECTOR_PRNG].words
        if self.tile().free != words:
            return f"its state has {words} words in each partition, the tile {self.tile().free}"
        return None

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: a word per cycle, so the least interval of the engine; no figure is published."""
        return elementwise_phases(self, target, self.tile(), (), modes=False)
