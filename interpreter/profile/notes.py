"""Plain-language bottlenecks: each rule looks at the figures and says what costs time, where, and what helps.

A rule yields notes with the share of the latency they concern, as far as it lies on the critical path; the largest
are shown. Rules speak about engines,
phases and data types, never about particular instructions. The rules about what an instruction is made of are in
`note_rules.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from interpreter.profile.note_rules import INSTRUCTION_RULES, Rule
from interpreter.profile.reading import Reading, Waited
from interpreter.profile.remarks import Note, Places
from interpreter.profile.units import (
    COMPUTE,
    DMA,
    DMA_REASONS,
    reason_group,
    reason_text,
    share_text,
    time_text,
    title,
)
from interpreter.timing.timeline import BANK_CONFLICT, BUFFER, DATA, PORT_CONFLICT, SEMAPHORE, TABLE_LOAD
from nki.enums import engine as Engine

DECIDED_BY_REASON = frozenset({SEMAPHORE, TABLE_LOAD, PORT_CONFLICT, BANK_CONFLICT})
LEAST_SHARE = 0.03
MOST_NOTES = 8
BOUND = 0.7
"""An engine busy for this share of the latency is what bounds the kernel."""
MATTERS = 0.5
"""An engine's waits matter if it is busy for this part of what the busiest compute engine is."""


def notes(reading: Reading) -> tuple[Note, ...]:
    """The bottlenecks, largest first."""
    if not reading.occupied or not reading.latency_ps:
        return (Note("The program has no instructions that take time.", code="empty"),)
    places = Places(reading)
    found = [note for rule in (*RULES, *INSTRUCTION_RULES) for note in rule(reading, places)]
    worth = sorted((note for note in found if note.share >= LEAST_SHARE), key=lambda note: -note.share)
    return tuple(worth[:MOST_NOTES]) or (_nothing(reading),)


def _nothing(reading: Reading) -> Note:
    latency = time_text(reading.latency_ps)
    return Note(f"No single bottleneck: the {latency} are spread over many short steps.", code="none")


def bound_by_engine(reading: Reading, places: Places) -> Iterator[Note]:
    """One compute engine is busy nearly all the time."""
    for unit in COMPUTE:
        busy = reading.work_ps(unit)
        if busy < BOUND * reading.latency_ps:
            continue
        held = [(n, ps) for (n, on), ps in reading.held.items() if on == unit and n not in reading.moves]
        number, most = places.heaviest(held)
        text = (
            f"The {title(unit)} engine is busy {share_text(busy, reading.latency_ps)} of the time and bounds the "
            f"kernel; {share_text(most, sum(ps for _, ps in held))} of its work comes from {places.named(number)}. "
            "Give it less to do, or move work to an idle engine."
        )
        yield places.note(text, "engine-bound", busy, number)


def issuing(reading: Reading, places: Places) -> Iterator[Note]:
    """An engine spends its time starting DMAs."""
    for unit, ps in reading.issue_ps.items():
        held = [(n, ps) for (n, on), ps in reading.held.items() if on == unit and n in reading.moves]
        if not held:
            continue
        number, most = places.heaviest(held)
        help_from = "let the hardware make descriptors (dge_mode=nisa.dge_mode.hwdge)"
        if unit != Engine.gpsimd.name or not reading.target.hwdge:
            help_from = "let another engine start some"
        text = (
            f"The {title(unit)} engine spends {share_text(ps, reading.latency_ps)} of the time starting {len(held)} "
            f"DMAs, {share_text(most, sum(ps for _, ps in held))} of it at {places.named(number)}. Move more bytes "
            f"with each, or {help_from}."
        )
        yield places.note(text, "dma-issue", min(ps, reading.critical_ps[DMA]), number)


def bound_by_dma(reading: Reading, places: Places) -> Iterator[Note]:
    """The DMA engines are busy nearly all the time: the kernel is bound by memory traffic."""
    use = reading.timeline.dma.busy_ps
    busy = sum(use) / max(1, len(use))
    held = [(number, ps) for (number, unit), ps in reading.held.items() if unit == DMA]
    if busy < BOUND * reading.latency_ps or not held:
        return
    number, _ = places.heaviest(held)
    text = (
        f"The DMA engines are busy {share_text(busy, reading.latency_ps)} of the time: memory traffic bounds the "
        f"kernel, most of it at {places.named(number)}. Load each tile once and keep it in SBUF, or use narrower types."
    )
    yield places.note(text, "memory-bound", busy, number)


def waiting(reading: Reading, places: Places) -> Iterator[Note]:
    """What the engines that matter wait for, by kind of obstacle and by who is waited for."""
    most = max(reading.work_ps(unit) for unit in COMPUTE)
    groups: defaultdict[tuple[str, str, str], list[Waited]] = defaultdict(list)
    for wait in reading.waited:
        busy = reading.work_ps(wait.unit)
        if wait.unit in COMPUTE and busy and busy >= MATTERS * most:
            groups[(wait.unit, *_obstacle(reading, wait))].append(wait)
    for (unit, reason, source), waits in groups.items():
        total = sum(wait.length for wait in waits)
        number, _ = places.heaviest((w.number if w.because < 0 else w.because, w.length) for w in waits)
        start = f"The {title(unit)} engine waits {share_text(total, reading.latency_ps)} of the time for"
        text = f"{start} {_advice(unit, reason, source, places.named(number))}"
        yield places.note(text, f"wait-{reason}", min(total, _worth(reading, reason, source)), number)


def _worth(reading: Reading, reason: str, source: str) -> int:
    """How much removing the obstacle could gain: an engine may wait for long behind one that itself waits."""
    if reason == DATA:
        return reading.critical_ps[source]
    return reading.critical_ps[reason] if reason in DECIDED_BY_REASON else reading.latency_ps


def _obstacle(reading: Reading, wait: Waited) -> tuple[str, str]:
    """What a wait is for: the reason, and the engine of the instruction that is waited for.

    All that a DMA takes before its data can be used is one obstacle.
    """
    source = reading.unit_of(wait.because)
    if source == DMA and wait.reason in DMA_REASONS | {DATA}:
        return DATA, DMA
    return wait.reason, source


def _advice(unit: str, reason: str, source: str, place: str) -> str:
    if reason == DATA and source == DMA:
        return f"DMA data loaded at {place}; load larger tiles, or start the loads earlier."
    if reason == DATA and source == unit:
        return f"its own results ({place}): each step needs the one before. Interleave independent tiles."
    if reason == DATA and source:
        return f"results of the {title(source)} engine ({place}); work on several tiles at once, so that both overlap."
    if reason == BUFFER:
        return (
            f"memory still in use at {place}; give the tile more buffers, so that the next one need not wait."
        )
    if reason == SEMAPHORE:
        return (
            f"semaphores, most after {place}: many short steps that depend on each other. Use larger tiles."
        )
    if reason_group(reason) == "resource":
        return f"{reason_text(reason)} ({place})."
    return f"{reason_text(reason)}, most at {place}."


def launch(reading: Reading, places: Places) -> Iterator[Note]:
    """The fixed cost of starting a kernel is larger than the kernel."""
    if reading.launch_ps > reading.latency_ps:
        text = (
            f"Starting a kernel costs {time_text(reading.launch_ps)} besides, more than the "
            f"{time_text(reading.latency_ps)} it runs: do more work per call."
        )
        yield Note(text, code="launch", share=LEAST_SHARE)


RULES: tuple[Rule, ...] = (bound_by_engine, issuing, bound_by_dma, waiting, launch)
