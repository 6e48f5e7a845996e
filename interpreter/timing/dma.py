"""A DMA in closed form: issue on an engine's queue, latency, bytes on the DMA engines, completion.

An engine's queue triggers the DMA; who makes the descriptors decides how long that takes. Every DMA engine serves a
few partitions, so a transfer of few rows keeps few engines busy; a transfer within HBM is spread over all. The
descriptors of an engine are never looked at one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from nki.enums import dge_mode
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction
from nki.ir.program import Access
from nki.target import Target

_PERCENT = 100


@dataclass(frozen=True, eq=False)
class DmaCharge:
    """Cost of one kind of DMA; times in picoseconds.

    engine: whose queue triggers it. issue: time that takes the queue. generator: time on the hardware descriptor
    generator of that engine. start: from the end of issue and generator until data can move. spread: from then on until
    the last DMA engine can begin. queued: whether DMAs can follow each other faster than their queue takes them.
    services: time on each DMA engine. from_hbm, into_hbm: where its operands are.
    """

    engine: Engine
    issue: int
    generator: int
    start: int
    spread: int
    queued: bool
    services: tuple[int, ...]
    bytes: int
    descriptors: int
    from_hbm: bool
    into_hbm: bool


def dma_charge(
    instruction: Instruction, phases: tuple[Phase, ...], target: Target, static: bool
) -> DmaCharge:
    """The charge of an instruction whose phases carry transfers."""
    transfers = [phase.transfer for phase in phases if phase.transfer]
    descriptors = sum(transfer.descriptors for transfer in transfers)
    mode = _mode(transfers[0].dge, target, static)
    engine = _issuer(instruction.engine, mode)
    issue, generator, start = _issue(mode, descriptors, target)
    indices = {id(index) for index in instruction.index_windows()}  # read by whoever makes the descriptors
    reads = [access for access in instruction.reads() if id(access) not in indices]
    writes = instruction.writes()
    rows = _rows_by_engine(reads, writes, target)
    services = [0] * target.dma_engines
    from_hbm = any(access.memory.is_hbm for access in reads)
    into_hbm = any(access.memory.is_hbm for access in writes)
    stores = into_hbm and not from_hbm
    for transfer in transfers:
        percent = max(1, round(transfer.efficiency * _PERCENT))
        moved = target.dma_bytes_ps(transfer.total_bytes, percent, store=stores)
        moved += transfer.descriptors * target.dma_descriptor_ps * _PERCENT // percent
        total = sum(rows)
        for position, share in enumerate(rows):
            services[position] += moved * share // total
    used = sum(service > 0 for service in services)
    spread = target.dma_swdge_spread_ps * max(0, used - 1) // (target.dma_engines - 1)
    return DmaCharge(
        engine,
        issue,
        generator,
        start,
        spread if mode is dge_mode.swdge else 0,
        max(issue, generator) < target.dma_queue_floor_ps,
        tuple(services),
        sum(transfer.total_bytes for transfer in transfers),
        descriptors,
        from_hbm,
        into_hbm,
    )


def _mode(asked: dge_mode, target: Target, static: bool) -> dge_mode:
    if static:
        return dge_mode.none
    return target.default_dge_static if asked is dge_mode.unknown else asked


def _issuer(asked: Engine, mode: dge_mode) -> Engine:
    """The engine whose queue triggers the DMA: GpSimd makes software descriptors, the others are free to choose."""
    if mode is dge_mode.swdge:
        return Engine.gpsimd
    if asked in (Engine.unknown, Engine.dma, Engine.gpsimd):
        return Engine.sync
    return asked


def _issue(mode: dge_mode, descriptors: int, target: Target) -> tuple[int, int, int]:
    """Time on the queue, on the hardware generator, and from then on until data can move."""
    if mode is dge_mode.swdge:
        batches = max(1, -(-descriptors // target.dma_swdge_descriptors))
        return (
            batches * target.dma_swdge_issue_ps,
            0,
            target.dma_swdge_prepare_ps - target.dma_swdge_issue_ps + target.dma_swdge_start_ps,
        )
    if mode is dge_mode.hwdge:
        return target.semaphore_instruction_ps, target.dma_hwdge_issue_ps, target.dma_hwdge_start_ps
    return target.dma_static_issue_ps, 0, target.dma_static_start_ps


def _rows_by_engine(reads: list[Access], writes: list[Access], target: Target) -> list[int]:
    """How many rows each DMA engine moves: those of the on-chip side by partition, else one each."""
    on_chip = [access for access in (*writes, *reads) if access.memory.on_chip]
    if not on_chip:
        return [1] * target.dma_engines
    first = on_chip[0].start_partition
    last = first + on_chip[0].partitions
    width = target.dma_engine_partitions
    rows = [
        max(0, min(last, (engine + 1) * width) - max(first, engine * width))
        for engine in range(target.dma_engines)
    ]
    return rows if sum(rows) else [1] * target.dma_engines
