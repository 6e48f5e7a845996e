"""Addresses for automatic tiles in SBUF and PSUM.

Next fit: freed addresses are reused in rotation, not at once, because immediate reuse makes every load wait for the
last reader of the tile before it. If rotation fails, the whole program is placed again with best fit; if that fails
too, the error says whether bytes are missing or only a gap that is large enough, and lists the tiles that are live.
Automatic tiles start at partition 0 and take their bytes in all partitions. PSUM tiles start at a bank and share one
only when none is free; the tiles of one place in the source rotate through banks of their own if there are at least
two for each such place, so that the scores of one iteration need not wait for the transposes of the one before.
"""

from __future__ import annotations

from bisect import bisect_left

from nki import errors
from nki.enums import MemoryRegion
from nki.ir.program import Program
from nki.passes.liveness import Live, live_ranges
from nki.target import Target


def allocate(program: Program) -> None:
    """Give every automatic tile that is used an address. Raises `CapacityError` or `FragmentationError`."""
    for core in program.cores:
        ranges = live_ranges(core)
        for memory in (MemoryRegion.sbuf, MemoryRegion.psum):
            tiles = [live for live in ranges if live.buffer.memory is memory]
            if tiles:
                _place(tiles, memory, program.target)


def _place(tiles: list[Live], memory: MemoryRegion, target: Target) -> None:
    # A recorded program brings the addresses of its automatic tiles along.
    placed = [live for live in tiles if live.buffer.address is not None]
    automatic = [live for live in tiles if live.buffer.address is None]
    for live in placed:
        _check_placed(live, memory, target)
    space = _Space(memory, target, best_fit=False)
    space.divide(automatic)
    if _walk(space, automatic, placed) is None:
        return
    for live in automatic:
        live.buffer.address = None
    space = _Space(memory, target, best_fit=True)
    failed = _walk(space, automatic, placed)
    if failed is not None:
        raise space.error(failed, placed)


def _walk(space: _Space, automatic: list[Live], placed: list[Live]) -> Live | None:
    """Place the tiles in order; the first that finds no place is returned."""
    return next((live for live in automatic if not space.allocate(live, placed)), None)


def _capacity(memory: MemoryRegion, target: Target) -> int:
    return target.sbuf_fmax_bytes if memory is MemoryRegion.sbuf else target.psum_partition_bytes


def _check_placed(live: Live, memory: MemoryRegion, target: Target) -> None:
    buffer = live.buffer
    assert buffer.address is not None
    end = buffer.address[1] + buffer.partition_bytes
    rows = buffer.address[0] + buffer.partitions
    physical = target.sbuf_partition_bytes if memory is MemoryRegion.sbuf else target.psum_partition_bytes
    if end > physical or rows > target.pmax or min(buffer.address) < 0:
        raise errors.CapacityError(
            f"{buffer.describe()} at address={buffer.address} leaves the memory",
            operand=buffer.label or buffer.name,
            found=f"partitions {buffer.address[0]}..{rows - 1}, bytes {buffer.address[1]}..{end - 1}",
            allowed=f"partitions 0..{target.pmax - 1}, bytes 0..{physical - 1} on {target.name}",
            remedy="address=(partition, byte offset in the partition) must keep the whole tile inside",
            span=buffer.span,
        )


class _Space:
    """The bytes of one partition during the walk through the program."""

    def __init__(self, memory: MemoryRegion, target: Target, best_fit: bool) -> None:
        self.memory = memory
        self.target = target
        self.best_fit = best_fit
        self.capacity = _capacity(memory, target)
        self.cursor = 0
        self.live: list[tuple[int, int, Live]] = []
        psum = memory is MemoryRegion.psum
        self.bank: int = target.psum_bank_bytes if psum else 0
        self.align = target.psum_min_align if psum else target.sbuf_min_align
        self.parts: dict[str, tuple[int, int]] = {}
        self.cursors: dict[str, int] = {}

    def divide(self, automatic: list[Live]) -> None:
        """Give every place in the source where PSUM tiles come from its own banks, if there are enough."""
        sites = list(dict.fromkeys(str(live.buffer.span) for live in automatic)) if self.bank else []
        banks = self.capacity // self.bank // len(sites) if sites else 0
        if len(sites) > 1 and banks >= _LEAST_BANKS:
            width = banks * self.bank
            self.parts = {site: (number * width, (number + 1) * width) for number, site in enumerate(sites)}

    def allocate(self, live: Live, placed: list[Live]) -> bool:
        """Place one tile; tiles come in order of first use, so those that died before it are dropped first."""
        self.live = [entry for entry in self.live if entry[2].last >= live.first]
        size = -(-live.buffer.partition_bytes // self.align) * self.align
        taken = self._taken(live, placed)
        start = self._find_in_part(str(live.buffer.span), size, taken) if self.parts else None
        if start is None:
            start = self._find(size, taken, self.bank or self.align)
        if start is None and self.bank and size <= self.bank:
            start = self._find_in_bank(size, taken)
        if start is None:
            return False
        live.buffer.address = (0, start)
        self.cursor = start + (-(-size // self.bank) * self.bank if self.bank else size)
        entry = (start, start + size, live)
        self.live.insert(bisect_left(self.live, start, key=lambda item: item[0]), entry)
        return True

    def _taken(self, live: Live, placed: list[Live]) -> list[tuple[int, int]]:
        taken = [(start, end) for start, end, _ in self.live]
        fixed = [
            (p.buffer.address[1], p.buffer.address[1] + p.buffer.partition_bytes)
            for p in placed
            if p.buffer.address is not None and p.overlaps(live)
        ]
        return sorted(taken + fixed) if fixed else taken

    def _gaps(self, taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
        gaps = []
        position = 0
        for start, end in taken:
            if start > position:
                gaps.append((position, start))
            position = max(position, end)
        if position < self.capacity:
            gaps.append((position, self.capacity))
        return gaps

    def _find(self, size: int, taken: list[tuple[int, int]], align: int) -> int | None:
        aligned = ((-(-low // align) * align, high) for low, high in self._gaps(taken))
        fitting = [(low, high) for low, high in aligned if low + size <= high]
        if not fitting:
            return None
        if self.best_fit:
            return min(fitting, key=lambda gap: (gap[1] - gap[0], gap[0]))[0]
        for low, high in fitting:
            start = max(low, -(-self.cursor // align) * align)
            if start + size <= high:
                return start
        return fitting[0][0]

    def _find_in_part(self, site: str, size: int, taken: list[tuple[int, int]]) -> int | None:
        """Next fit within the banks of one place in the source."""
        first, last = self.parts[site]
        span = -(-size // self.bank) * self.bank
        starts = range(first, last - span + 1, self.bank)
        later = range(self.cursors.get(site, first), last - span + 1, self.bank)
        start: int
        for start in (*later, *starts):
            if all(end <= start or low >= start + size for low, end in taken):
                self.cursors[site] = start + span
                return start
        return None

    def _find_in_bank(self, size: int, taken: list[tuple[int, int]]) -> int | None:
        for low, high in self._gaps(taken):
            start = -(-low // self.align) * self.align
            if start % self.bank + size > self.bank:
                start = -(-start // self.bank) * self.bank
            if start + size <= high:
                return start
        return None

    def error(self, failed: Live, placed: list[Live]) -> errors.CapacityError:
        """The error for the tile that found no place, with everything that is live at that point."""
        buffer = failed.buffer
        alive = [live for _, _, live in self.live] + [p for p in placed if p.overlaps(failed)]
        used = sum(live.buffer.partition_bytes for live in alive)
        free = self.capacity - used
        size = buffer.partition_bytes
        fragmented = free >= size
        name = self.memory.value.upper()
        kind = errors.FragmentationError if fragmented else errors.CapacityError
        what = "has no gap large enough" if fragmented else "is full"
        return kind(
            f"{name} {what}: `{buffer.label or buffer.name}` needs {size} bytes a partition, {max(free, 0)} are free",
            operand=f"{buffer.describe()}, allocated at {buffer.span}",
            found=f"{used + size} bytes a partition needed at once ({used} live + {size})",
            allowed=f"{self.capacity} bytes a partition on {self.target.name}",
            remedy=(
                "allocate large tiles first or place tiles with address=; the free bytes are scattered"
                if fragmented
                else "use smaller tiles, or stop using the listed ones earlier"
            ),
            notes=_listed(alive),
            span=failed.span,
        )


_LEAST_BANKS = 2
"""Banks that let a place in the source fill one while another is read."""

_LISTED = 12


def _listed(alive: list[Live]) -> tuple[str, ...]:
    """One line for each place that live tiles come from, the largest first."""
    tiles: dict[str, list[int]] = {}
    for live in alive:
        buffer = live.buffer
        tiles.setdefault(f"{buffer.describe()} from {buffer.span}", []).append(buffer.partition_bytes)
    ordered = sorted(tiles.items(), key=lambda entry: -sum(entry[1]))
    lines = [
        f"live:    {f'{len(sizes)} times ' if len(sizes) > 1 else ''}{what}: {sum(sizes)} bytes a partition"
        for what, sizes in ordered[:_LISTED]
    ]
    if len(ordered) > _LISTED:
        rest = sum(sum(sizes) for _, sizes in ordered[_LISTED:])
        lines.append(f"live:    others from {len(ordered) - _LISTED} more places: {rest} bytes a partition")
    return tuple(lines)
