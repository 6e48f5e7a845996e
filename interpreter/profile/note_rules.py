"""Notes about what the instructions are made of: small rows, few partitions, wide types, tables, short instructions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from interpreter.profile.reading import Reading
from interpreter.profile.remarks import Note, Places
from interpreter.profile.units import COMPUTE, DMA, bytes_text, share_text, time_text, title
from interpreter.timing.timeline import TABLE_LOAD
from nki import dtypes
from nki.enums import engine as Engine
from nki.target import Target

FEW = 0.5
"""An instruction on fewer than this part of the partitions wastes the engine's width."""

TABLE_LOADS = 3
"""So many loads of activation tables are worth a word."""


def small_rows(reading: Reading, places: Places) -> Iterator[Note]:
    """Transfers in pieces too short for the DMA engines."""
    least = reading.target.dma_row_bytes_least
    sizes: dict[int, int] = {}
    for number in reading.moves:
        transfer = reading.transfer(number)
        if transfer is not None and transfer.descriptor_bytes < least:
            sizes[number] = transfer.descriptor_bytes
    if not sizes:
        return
    number, _ = places.heaviest((n, reading.held.get((n, DMA), 0)) for n in sizes)
    moved = reading.union(DMA)
    slow = reading.union(DMA, sizes.keys())
    text = (
        f"{share_text(slow, moved)} of the DMA time moves pieces shorter than {bytes_text(least)} "
        f"({bytes_text(sizes[number])} at {places.named(number)}), which use a fraction of the bandwidth; move at "
        f"least {bytes_text(least)} per partition at once."
    )
    yield places.note(text, "small-rows", min(slow, reading.critical_ps[DMA]), number)


def few_partitions(reading: Reading, places: Places) -> Iterator[Note]:
    """Instructions on a few partitions take as long as on all of them."""
    most = reading.target.pmax
    rows: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for number, unit in reading.held:
        if unit in COMPUTE:
            accesses = [access for _, access in reading.instructions[number].accesses()]
            widest = max((access.partitions for access in accesses if access.memory.on_chip), default=most)
            if widest < FEW * most:
                rows[unit][number] = widest
    for unit, found in rows.items():
        times = [(number, reading.held[number, unit]) for number in found]
        number, _ = places.heaviest(times)
        text = (
            f"The {title(unit)} engine works on {found[number]} of {most} partitions at {places.named(number)}; that "
            "takes as long as all of them. Put more rows into the partition dimension."
        )
        total = sum(ps for _, ps in times)
        yield places.note(text, "few-partitions", min(total, reading.critical_ps[unit]), number)


def wide_products(reading: Reading, places: Places) -> Iterator[Note]:
    """float32 on the Tensor engine streams several times."""
    unit = Engine.tensor.name
    found = [(n, ps) for (n, on), ps in reading.held.items() if on == unit and _reads_float32(reading, n)]
    if not found:
        return
    number, _ = places.heaviest(found)
    passes = reading.target.tensor_fp32_passes
    text = (
        f"float32 operands at {places.named(number)} take the Tensor engine {passes} passes; bfloat16 takes one "
        "(products are still summed in float32)."
    )
    total = min(sum(ps for _, ps in found), reading.critical_ps[unit])
    yield places.note(text, "float32-matmul", total * (passes - 1) / passes, number)


def _reads_float32(reading: Reading, number: int) -> bool:
    accesses = reading.instructions[number].accesses()
    return any(access.dtype is dtypes.float32 and not operand.is_output for operand, access in accesses)


def table_loads(reading: Reading, places: Places) -> Iterator[Note]:
    """An engine keeps changing its activation tables."""
    loads = [wait for wait in reading.waited if wait.reason == TABLE_LOAD]
    if len(loads) < TABLE_LOADS:
        return
    number, _ = places.heaviest((wait.number, wait.length) for wait in loads)
    total = sum(wait.length for wait in loads)
    text = (
        f"The {title(loads[0].unit)} engine loads activation tables {len(loads)} times ({time_text(total)}), most at "
        f"{places.named(number)}; do all work with one function before the next."
    )
    yield places.note(text, "activation-tables", min(total, reading.critical_ps[TABLE_LOAD]), number)


def short_instructions(reading: Reading, places: Places) -> Iterator[Note]:
    """Instructions that last as long as the smallest possible one."""
    least = _least_ps(reading.target)
    short: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    count: defaultdict[str, int] = defaultdict(int)
    for (number, unit), ps in reading.held.items():
        count[unit] += 1
        if unit in least and ps <= least[unit] and number not in reading.moves:
            short[unit].append((number, ps))
    for unit, found in short.items():
        number, _ = places.heaviest(found)
        text = (
            f"{share_text(len(found), count[unit])} of the {title(unit)} engine's instructions are too small to fill "
            f"it, most of them at {places.named(number)}: each costs {time_text(least[unit])} however few elements it "
            "has. Use larger tiles."
        )
        total = sum(ps for _, ps in found)
        yield places.note(text, "short-instructions", min(total, reading.critical_ps[unit]), number)


def _least_ps(target: Target) -> dict[str, int]:
    """The shortest time each engine takes for an instruction."""
    cycles = {
        Engine.tensor: target.tensor_init_cycles,
        Engine.vector: target.vector_min_cycles,
        Engine.scalar: target.scalar_min_cycles,
        Engine.gpsimd: target.gpsimd_startup_cycles + target.gpsimd_min_cycles,
    }
    return {unit.name: target.cycles_ps(unit, count) for unit, count in cycles.items()}


Rule = Callable[[Reading, Places], Iterator[Note]]

INSTRUCTION_RULES: tuple[Rule, ...] = (
    small_rows,
    few_partitions,
    wide_products,
    table_loads,
    short_instructions,
)
