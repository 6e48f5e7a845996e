"""From a reading to the lanes of the timeline: engines with their waits, DMA queues, and memory over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from interpreter.profile.describe import Describer
from interpreter.profile.lanes import FULL, Bar, Lane
from interpreter.profile.reading import Occupied, Reading, Waited
from interpreter.profile.units import DMA, bytes_text, in_order, reason_group, reason_text, share_text, title
from nki.enums import MemoryRegion
from nki.ir.program import Buffer

MOST_BARS = 40_000
"""Bars of a page; a program with more gets its thinnest ones merged."""

FEW_QUEUES = 6
"""Up to so many DMA queues are drawn with room for their names."""

ENGINE_HEIGHT, ROW_HEIGHT, QUEUE_HEIGHT, THIN_HEIGHT = 26, 19, 15, 9
SBUF_HEIGHT, PSUM_HEIGHT = 96, 56
WAIT_TOP = 650
"""Where the bar of a wait begins, in parts of the first row of its lane: waits are low, work is high."""

LineNumbers = Mapping[tuple[str, int], int]


def all_lanes(reading: Reading, describer: Describer, number_of: LineNumbers) -> tuple[Lane, ...]:
    """Every lane with all its bars."""
    work: defaultdict[tuple[str, int], list[Occupied]] = defaultdict(list)
    waits: defaultdict[str, list[Waited]] = defaultdict(list)
    for event in reading.occupied:
        work[event.unit, event.lane].append(event)
    for wait in reading.waited:
        waits[wait.unit].append(wait)
    maker = _Maker(reading, describer, number_of)
    units = [unit for unit in in_order(unit for unit, _ in work) if unit != DMA]
    lanes = [maker.engine(unit, work[unit, 0], waits[unit]) for unit in units]
    lanes += maker.queues({lane: events for (unit, lane), events in sorted(work.items()) if unit == DMA})
    return (*lanes, *maker.memories())


class _Maker:
    """Makes lanes of one program."""

    def __init__(self, reading: Reading, describer: Describer, number_of: LineNumbers) -> None:
        self.reading = reading
        self.describer = describer
        self.number_of = number_of

    def engine(self, unit: str, events: list[Occupied], waits: list[Waited]) -> Lane:
        """A lane of one engine; overlapping phases get rows of their own."""
        rows = 1 + max(event.row for event in events)
        height = ENGINE_HEIGHT if rows == 1 else ROW_HEIGHT * rows
        before = {wait.end: wait for wait in waits}
        main = self._main_kind(events)
        bars = [self._bar(event, rows, before.get(event.start), event.kind != main) for event in events]
        bars += [self._wait_bar(wait, rows) for wait in waits]
        bars.sort(key=lambda bar: (bar.start, not bar.wait))
        use = share_text(self.reading.union(unit), self.reading.latency_ps)
        return Lane(title(unit), use, f"--{unit}", height, 6, tuple(bars))

    def queues(self, by_queue: dict[int, list[Occupied]]) -> list[Lane]:
        """A lane per DMA queue; thin ones without names if there are many."""
        lanes = []
        roomy = len(by_queue) <= FEW_QUEUES
        for position, (queue, events) in enumerate(by_queue.items()):
            rows = 1 + max(event.row for event in events)
            bars = tuple(self._bar(event, rows, None, False) for event in events)
            name = f"{title(DMA)} queue" if roomy or position == 0 else ""
            swatch = f"--{DMA}" if roomy or position == 0 else ""
            gap = 6 if position == len(by_queue) - 1 else 2
            height = QUEUE_HEIGHT if roomy else THIN_HEIGHT
            lanes.append(Lane(name, str(queue), swatch, height, gap, bars, labels=roomy))
        return lanes

    def memories(self) -> list[Lane]:
        """SBUF and PSUM: a bar is a tile, as high as its bytes in a partition and as long as it lives."""
        target = self.reading.target
        sizes = {
            MemoryRegion.sbuf: (target.sbuf_partition_bytes, SBUF_HEIGHT),
            MemoryRegion.psum: (target.psum_partition_bytes, PSUM_HEIGHT),
        }
        live = self._lifetimes()
        lanes = []
        for memory, (capacity, height) in sizes.items():
            tiles = [(b, span) for b, span in live.items() if b.memory is memory and b.address]
            top = max((b.address[1] + b.partition_bytes for b, _ in tiles if b.address), default=0)
            shown = next(capacity >> n for n in range(6, -1, -1) if top <= capacity >> n or not n)
            bars = tuple(
                sorted((self._tile_bar(b, span, shown) for b, span in tiles), key=lambda bar: bar.start)
            )
            name, swatch = memory.value.upper(), f"--{memory.value}"
            if bars:
                lanes.append(Lane(name, f"to {bytes_text(shown)}", swatch, height, 6, bars, overview=False))
        return lanes

    def _lifetimes(self) -> dict[Buffer, tuple[int, int]]:
        live: dict[Buffer, tuple[int, int]] = {}
        instructions = self.reading.instructions
        for event in self.reading.occupied:
            for _, access in instructions[event.number].accesses():
                start, end = live.get(access.buffer, (event.start, event.visible))
                live[access.buffer] = (min(start, event.start), max(end, event.visible))
        return live

    def _tile_bar(self, buffer: Buffer, span: tuple[int, int], capacity: int) -> Bar:
        _, address = buffer.address or (0, 0)
        top = FULL * address // capacity
        height = max(4, FULL * (address + buffer.partition_bytes) // capacity - top)
        where = f"bytes {address} to {address + buffer.partition_bytes} of each partition"
        line = self.number_of.get((buffer.span.file, buffer.span.line), -1)
        return Bar(
            span[0], span[1] - span[0], top, height, f"--{buffer.memory.value}", buffer.label or buffer.name,
            f"{buffer.describe()}\n{where}", line,
        )  # fmt: skip

    def _bar(self, event: Occupied, rows: int, wait: Waited | None, light: bool) -> Bar:
        span = self.reading.span(event.number)
        color = f"--{event.unit}-light" if light else f"--{event.unit}"
        return Bar(
            start=event.start,
            length=event.end - event.start,
            top=FULL * event.row // rows,
            height=FULL // rows,
            color=color,
            head=self.describer.head(event.number, event.kind),
            line=self.number_of.get((span.file, span.line), -1),
            number=event.number,
            after=max(0, event.visible - event.end),
            waited=wait.length if wait else 0,
            why=self._why(wait) if wait else "",
            light=light,
        )

    def _wait_bar(self, wait: Waited, rows: int) -> Bar:
        span = self.reading.span(wait.because)
        return Bar(
            start=wait.start,
            length=wait.length,
            top=WAIT_TOP // rows,
            height=(FULL - WAIT_TOP) // rows,
            color=f"--wait-{reason_group(wait.reason)}",
            head=f"waits for {reason_text(wait.reason)}",
            text=self.describer.head(wait.because),
            line=self.number_of.get((span.file, span.line), -1),
            wait=True,
        )

    def _why(self, wait: Waited) -> str:
        cause = self.describer.cause_text(wait.because)
        return f"{reason_text(wait.reason)} ({cause})" if cause else reason_text(wait.reason)

    @staticmethod
    def _main_kind(events: list[Occupied]) -> str:
        total: defaultdict[str, int] = defaultdict(int)
        for event in events:
            total[event.kind] += event.end - event.start
        return max(total, key=lambda kind: (total[kind], kind))
