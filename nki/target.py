"""The machines: `trn1`, `trn2` and `trn3`, every hardware number with its source.

No other module states a hardware number. The numbers stand in three tables, one column per generation:
`target_limits` (memories, limits, capabilities), `target_timing` (engines) and `target_dma` (data movement).
A `Target` is one column: each row is a plain attribute (`target.pmax`), and `target.fact(name)` says how
the number is known and where it is written. Times are integer picoseconds; names carry their unit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Final

from nki.enums import engine, nc_version
from nki.target_dma import DmaTiming
from nki.target_facts import GENERATIONS, Fact, Label, Row
from nki.target_limits import Limits
from nki.target_timing import EngineTiming

__all__ = ["Fact", "Label", "Row", "Target", "configured", "get_target"]

ENVIRONMENT: Final = "NEURON_PLATFORM_TARGET_OVERRIDE"
RESERVES_BANK: Final = "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE"
DEFAULT: Final = "trn3"
_TWICE_PS_PER_US: Final = 2_000_000  # rounds half up without leaving the integers

_VERSIONS: Final = (nc_version.gen2, nc_version.gen3, nc_version.gen4)
_ALIASES: Final[Mapping[str, str]] = {
    "trn1": "trn1",
    "inf2": "trn1",
    "gen2": "trn1",
    "trn2": "trn2",
    "gen3": "trn2",
    "trn3": "trn3",
    "gen4": "trn3",
}


@dataclass(frozen=True, repr=False, kw_only=True)
class Target(Limits, EngineTiming, DmaTiming):
    """One generation of the NeuronCore. `dataclasses.replace` makes a what-if machine of it."""

    name: str
    version: nc_version
    _clocks_mhz: dict[engine, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        clocks = {
            engine.tensor: self.tensor_clock_mhz,
            engine.vector: self.vector_clock_mhz,
            engine.scalar: self.scalar_clock_mhz,
            engine.gpsimd: self.gpsimd_clock_mhz,
            engine.sync: self.sync_clock_mhz,
        }
        object.__setattr__(self, "_clocks_mhz", clocks)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Target({self.name})"

    # Time

    def clock_mhz(self, unit: engine) -> int:
        """Clock of a compute engine or the Sync engine (DMA has none: it is timed by bytes)."""
        return self._clocks_mhz[unit]

    def clock_ghz(self, unit: engine) -> float:
        """The same in GHz, for people to read."""
        return self._clocks_mhz[unit] / 1000

    def cycles_ps(self, unit: engine, cycles: int, divisor: int = 1) -> int:
        """`cycles / divisor` cycles of an engine in picoseconds, exact, rounded once (half up).

        >>> get_target("trn1").cycles_ps(engine.tensor, 64)
        22857
        """
        denominator = self._clocks_mhz[unit] * divisor
        return (cycles * _TWICE_PS_PER_US + denominator) // (2 * denominator)

    def dma_bytes_ps(self, nbytes: int, percent: int = 100, *, store: bool = False) -> int:
        """Time in which one DMA engine moves `nbytes` at `percent` of its rate; store: from SBUF to HBM."""
        rate = self.dma_engine_store_bytes_per_us if store else self.dma_engine_bytes_per_us
        denominator = rate * percent
        return (nbytes * 100 * _TWICE_PS_PER_US + denominator) // (2 * denominator)

    # Limits

    def matmul_moving_fmax(self, dst_dtype: str) -> int:
        """Largest free size of `moving` in a matmul that writes `dst_dtype`."""
        if dst_dtype == "float32":
            return self.matmul_moving_fmax_float32
        return self.matmul_moving_fmax_bfloat16

    def start_partitions(self, count: int) -> tuple[int, ...]:
        """Where an operand of `count` partitions may start: at 0, a half, or a quadrant."""
        if count > self.pmax // 2:
            return (0,)
        step = self.pmax // 2 if count > self.quadrant_partitions else self.quadrant_partitions
        return tuple(range(0, self.pmax, step))

    # Sources

    def fact(self, name: str) -> Fact:
        """Value, label, source and meaning of the number called `name`."""
        stated = _table()[name].fact(_VERSIONS.index(self.version))
        value = getattr(self, name)
        if value == stated.value:
            return stated
        return Fact(value, Label.ESTIMATE, f"changed by the user from {stated.value}", stated.doc)

    def facts(self) -> Mapping[str, Fact]:
        """All numbers of this machine, in the order of the tables."""
        return {name: self.fact(name) for name in _table()}

    @staticmethod
    def rows() -> tuple[Row, ...]:
        """The tables themselves: every number on trn1, trn2 and trn3 side by side."""
        return tuple(_table().values())


def get_target(name: str | Target | nc_version | None = None) -> Target:
    """The machine called `name` (`trn2`, `gen3`, `nc_version.gen3`...).

    Without a name: the one in NEURON_PLATFORM_TARGET_OVERRIDE, else trn3.
    """
    if isinstance(name, Target):
        return name
    if isinstance(name, nc_version):
        return _build(GENERATIONS[_VERSIONS.index(name)])
    origin = "target"
    if name is None:
        name = os.environ.get(ENVIRONMENT) or DEFAULT
        origin = ENVIRONMENT
    generation = _ALIASES.get(name.strip().lower()) if isinstance(name, str) else None
    if generation is None:
        raise _unknown(name, origin)
    return _build(generation)


def configured(target: Target) -> Target:
    """The machine as the environment sets it up: with NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE, the last PSUM bank of trn2 and
    later is kept for transposes and no kernel has it."""
    wanted = os.environ.get(RESERVES_BANK, "").strip().lower() in ("1", "true")
    return _with_reserved_bank(target) if wanted and target.version > nc_version.gen2 else target


@cache
def _with_reserved_bank(target: Target) -> Target:
    banks = target.psum_num_banks_pe_transpose
    return replace(target, psum_num_banks=banks, psum_partition_bytes=banks * target.psum_bank_bytes)


def _unknown(name: object, origin: str) -> Exception:
    from nki.errors import TargetError

    return TargetError(
        f"unknown {origin} {name!r}",
        found=name,
        allowed=", ".join(_ALIASES),
        remedy=f'name one of these generations, for example target="trn2" or {ENVIRONMENT}=trn2',
    )


@cache
def _build(generation: str) -> Target:
    column = GENERATIONS.index(generation)
    values: dict[str, Any] = {name: entry.values[column] for name, entry in _table().items()}
    return Target(name=generation, version=_VERSIONS[column], **values)


@cache
def _table() -> dict[str, Row]:
    """Every row of the three tables, by name, in reading order."""
    return {
        entry.name: Row(entry.name, *entry.metadata["row"])
        for part in (Limits, EngineTiming, DmaTiming)
        for entry in fields(part)
    }
