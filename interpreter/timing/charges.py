"""What one kind of instruction costs, in picoseconds: made once per `Instruction.key()`, charged every time.

A `Charge` says on which engine the instruction is queued, for how long it holds it and what else it needs. DMAs add the
time they keep each of the DMA engines busy, in closed form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from interpreter.timing.dma import DmaCharge, dma_charge
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.effects import RENDEZVOUS
from nki.ir.instruction import Instruction
from nki.target import Target

ENGINES = (Engine.tensor, Engine.vector, Engine.scalar, Engine.gpsimd, Engine.sync)
"""Engines with a queue; a lane is a position in this list."""

TENSOR, VECTOR, SCALAR, GPSIMD, SYNC = range(len(ENGINES))

SIMPLE, SHARING, STREAMING, DMA, MEETING, EXCHANGE = range(6)
"""How an instruction is scheduled: alone, with ports or tables, with steps behind the engine's back, as a DMA, when the
other core has come to its counterpart, as a DMA that moves data then."""


class StreamStep(NamedTuple):
    """One phase of a streaming instruction."""

    background: bool
    interval: int
    latency: int
    kind: str
    throttled: int
    """Time of it that the reduced rate of its engine adds."""


@dataclass(eq=False)
class Charge:
    """Cost of one kind of instruction; times in picoseconds.

    way: one of SIMPLE, SHARING, STREAMING, DMA. after: from the end of the interval to its semaphore being visible.
    banks: operands in PSUM whose banks another engine may hold. steps: the phases of a STREAMING instruction.
    """

    lane: int
    way: int
    interval: int
    after: int
    kind: str = ""
    table: str | None = None
    ports: tuple[str, ...] = ()
    banks: tuple[str, ...] = ()
    steps: tuple[StreamStep, ...] = ()
    dma: DmaCharge | None = None
    early: frozenset[str] = frozenset()
    """Operands that the first of the steps reads, if it does not read all."""
    macs: int = 0
    moving_macs: int = 0
    """Multiply-adds of the PE array, and those of them that only move data."""


def charge_of(instruction: Instruction, target: Target, static: bool) -> Charge:
    """Work an instruction's phases out. `static`: all DMA descriptors are prepared before the run."""
    phases = instruction.cost(target)
    if any(phase.transfer for phase in phases):
        dma = dma_charge(instruction, phases, target, static)
        way = EXCHANGE if RENDEZVOUS in instruction.effects else DMA
        return Charge(ENGINES.index(dma.engine), way, dma.issue, 0, "dma", dma=dma)
    unit = _queue_of(instruction)
    lane = ENGINES.index(unit)
    steps = tuple(_steps(phases, unit, target))
    interval, latency = _span(steps)
    table = next((phase.table for phase in phases if phase.table), None)
    ports = tuple(dict.fromkeys(port for phase in phases for port in phase.ports))
    banks = _bank_operands(instruction, lane, target)
    way = SHARING if table or ports or banks else SIMPLE
    if lane == TENSOR or any(step.background for step in steps):
        way = STREAMING
    if RENDEZVOUS in instruction.effects:
        way = MEETING
    kind = steps[-1].kind if steps else ""
    after = latency + target.semaphore_signal_ps
    charge = Charge(lane, way, interval, after, kind, table, ports, banks, steps)
    if way == STREAMING:
        charge.early = frozenset(phases[0].needs)
    charge.macs = sum(phase.macs for phase in phases)
    charge.moving_macs = sum(phase.macs for phase in phases if phase.moves)
    return charge


def without_contention(charges: Iterable[Charge]) -> None:
    """Leave out the ports and banks that one engine alone uses: its queue keeps them apart already."""
    lanes: dict[str, set[int]] = {}
    banks: set[int] = set()
    members = [charge for charge in charges if charge.way == SHARING]
    for charge in members:
        for port in charge.ports:
            lanes.setdefault(port, set()).add(charge.lane)
        banks.update([charge.lane] if charge.banks else [])
    for charge in members:
        charge.ports = tuple(port for port in charge.ports if len(lanes[port]) > 1)
        charge.banks = charge.banks if len(banks) > 1 else ()
        if not (charge.table or charge.ports or charge.banks):
            charge.way = SIMPLE


def _queue_of(instruction: Instruction) -> Engine:
    """The engine whose queue holds an instruction that is no DMA."""
    unit = instruction.engine
    if unit is Engine.unknown and instruction.engines:
        unit = instruction.engines[0]
    return unit if unit in ENGINES else Engine.sync


def _steps(phases: tuple[Phase, ...], unit: Engine, target: Target) -> Iterator[StreamStep]:
    for phase in phases:
        interval, latency = target.cycles_ps(unit, phase.interval), target.cycles_ps(unit, phase.latency)
        slower = interval * 100 // target.tensor_cold_percent - interval if phase.throttled else 0
        yield StreamStep(phase.background, interval + slower, latency, phase.kind, slower)


def _span(steps: tuple[StreamStep, ...]) -> tuple[int, int]:
    """Time the phases hold the engine one after the other, and what remains then until all results are visible."""
    held = visible = 0
    for step in steps:
        held += step.interval
        visible = max(visible, held + step.latency)
    return held, visible - held


def _bank_operands(instruction: Instruction, lane: int, target: Target) -> tuple[str, ...]:
    """Operands in PSUM of the two engines that collide when they use one bank."""
    if lane not in (VECTOR, SCALAR) or not target.psum_bank_conflicts:
        return ()
    return tuple(o.name for o, access in instruction.accesses() if access.memory is MemoryRegion.psum)
