"""The head of the report as texts and whole numbers: figures, engines, notes. The page adds the rest in `view.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from interpreter.profile.measures import PS_PER_US, EngineSummary
from interpreter.profile.parts import Part, stacked
from interpreter.profile.roofline import Roofline
from interpreter.profile.units import DMA, bytes_text, reason_group, reason_text, share_text, time_text, title
from nki.enums import MemoryRegion

if TYPE_CHECKING:
    from interpreter.profile.profile import Profile


@dataclass(frozen=True)
class Card:
    """One large figure."""

    label: str
    value: str
    detail: str


@dataclass(frozen=True)
class EngineRow:
    """One engine of the table."""

    name: str
    swatch: str
    busy: str
    use: str
    instructions: int
    parts: tuple[Part, ...]
    summary: str


@dataclass(frozen=True)
class NoteRow:
    """One note."""

    text: str
    line: int


@dataclass(frozen=True)
class Overview:
    """What every form of the report begins with."""

    kernel: str
    chips: tuple[str, ...]
    subtitle: str
    cards: tuple[Card, ...]
    engines: tuple[EngineRow, ...]
    notes: tuple[NoteRow, ...]


def overview(profile: Profile) -> Overview:
    """Figures, engines and notes."""
    number_of = line_numbers(profile)
    return Overview(
        kernel=profile.kernel,
        chips=(profile.target, schedule_text(profile)),
        subtitle=_subtitle(profile),
        cards=_cards(profile),
        engines=tuple(_engine(profile, engine) for engine in profile.engines.values() if engine.instructions),
        notes=tuple(NoteRow(str(note), number_of.get((note.file, note.line), -1)) for note in profile.notes),
    )


def schedule_text(profile: Profile) -> str:
    """Which schedule was used, and what the other one would take."""
    used, other = profile.schedules
    return f"schedule: {used} (as {other}: {time_text(profile.schedules[other] * PS_PER_US)})"


def line_numbers(profile: Profile) -> dict[tuple[str, int], int]:
    """The index of each source line among the lines of the profile."""
    return {(line.file, line.line): number for number, line in enumerate(profile.lines)}


def _subtitle(profile: Profile) -> str:
    count = len(profile.reading.instructions)
    cores = len(profile.program.cores)
    return f"{count:,} instructions on {cores} cores" if cores > 1 else f"{count:,} instructions"


def _cards(profile: Profile) -> tuple[Card, ...]:
    dma, target = profile.dma, profile.program.target
    peak = target.dma_engines * target.dma_engine_bytes_per_us / 1000
    cards = [
        Card("Latency", time_text(profile.latency_us * PS_PER_US), "first instruction to last semaphore"),
        Card("Launch", time_text(profile.launch_us * PS_PER_US), "fixed cost a host sees besides"),
    ]
    compute = [engine for engine in profile.engines.values() if engine.name != DMA and engine.instructions]
    if compute:
        busiest = max(compute, key=lambda engine: engine.utilisation)
        cards.append(
            Card(
                "Busiest engine",
                f"{title(busiest.name)} {share_text(busiest.utilisation)}",
                _cycles_text(busiest),
            )
        )
    cards.append(
        Card(
            "Data moved",
            bytes_text(dma.bytes),
            f"{dma.transfers:,} transfers, {bytes_text(dma.bytes_per_descriptor)} a descriptor",
        )
    )
    cards.append(
        Card("DMA rate", f"{dma.gb_per_s:.1f} GB/s", f"{share_text(dma.gb_per_s, peak)} of {peak:.0f} GB/s")
    )
    return (*cards, *_roofline_cards(profile.roofline), *_memory_cards(profile))


def _roofline_cards(found: Roofline) -> list[Card]:
    """Shares of the peaks; a kernel without products has only one."""
    cards = [
        Card("MBU", share_text(found.mbu), f"{bytes_text(found.hbm_bytes)} of HBM traffic, against one stack")
    ]
    if found.flops or found.moving_flops:
        detail = f"{found.intensity:.0f} operations a byte, {found.bound} bound above {found.ridge:.0f}"
        if found.bound == "memory":
            detail = f"{found.intensity:.0f} operations a byte, memory bound below {found.ridge:.0f}"
        cards.insert(0, Card("MFU", share_text(found.mfu), detail))
    return cards


def _cycles_text(engine: EngineSummary) -> str:
    return f"{engine.cycles:,} cycles, {engine.instructions:,} instructions"


def _memory_cards(profile: Profile) -> list[Card]:
    target = profile.program.target
    capacity = {MemoryRegion.sbuf: target.sbuf_fmax_bytes, MemoryRegion.psum: target.psum_partition_bytes}
    cards = []
    for memory, most in capacity.items():
        top = max(
            (
                b.address[1] + b.partition_bytes
                for b in profile.program.buffers
                if b.memory is memory and b.address
            ),
            default=0,
        )
        cards.append(
            Card(
                f"{memory.value.upper()} in use",
                share_text(top, most),
                f"{bytes_text(top)} of {bytes_text(most)} a partition",
            )
        )
    return cards


def _engine(profile: Profile, engine: EngineSummary) -> EngineRow:
    latency = profile.latency_us or 1.0
    swatch = f"--{engine.name}"
    stretches = [(engine.busy_us, swatch, f"busy {time_text(engine.busy_us * PS_PER_US)}")]
    for reason, us in engine.waits.items():
        label = f"waits for {reason_text(reason)}: {time_text(us * PS_PER_US)}"
        stretches.append((us, f"--wait-{reason_group(reason)}", label))
    waits = [
        f"{reason_text(reason)} {share_text(us, latency)}" for reason, us in list(engine.waits.items())[:3]
    ]
    return EngineRow(
        name=title(engine.name),
        swatch=swatch,
        busy=time_text(engine.busy_us * PS_PER_US),
        use=share_text(engine.utilisation),
        instructions=engine.instructions,
        parts=stacked(stretches, latency),
        summary=_engine_summary(profile, engine, waits),
    )


def _engine_summary(profile: Profile, engine: EngineSummary, waits: list[str]) -> str:
    if engine.name == DMA:
        count = len(profile.dma.busy_us)
        active = share_text(profile.dma.active_us, profile.latency_us)
        return f"mean of {count} engines; data moves {active} of the time"
    return "waits for " + ", ".join(waits) if waits else "never waits"
