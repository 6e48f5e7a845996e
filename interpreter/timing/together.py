"""Several cores in time: each is scheduled by itself up to a barrier or an exchange, for which it waits for the others.

Exchanges of different groups do not hold each other up, so a core may have to be scheduled past one whose other side is
not known yet. It is taken to be there, and if it came later than that, everything is scheduled again with what has been
found: times only grow, so the first that agree are the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from interpreter.timing.schedule import Meetings
from interpreter.timing.timeline import Trace
from nki import errors
from nki.ir.instruction import Instruction

_MOST_ROUNDS = 1000

Place = tuple[Hashable, int]
"""A meeting: its key, and how many of that key came before."""


def run_together(cores: Sequence[Sequence[Instruction]], start: Callable[[int], Meetings]) -> list[Trace]:
    """The traces of all cores. `start` begins to schedule one of them anew."""
    known: dict[Place, int] = {}
    for _ in range(_MOST_ROUNDS):
        attempt = _Round(cores, [start(core) for core in range(len(cores))], known)
        later = attempt.run()
        if not later:
            return attempt.traces
        known.update(later)
    raise errors.DeadlockError(
        "the exchanges of the cores wait for each other in a circle",
        found="no order in which they can take place",
        allowed="exchanges whose data do not depend on each other both ways",
        remedy="give the exchanges one order on both cores",
    )


class _Round:
    """All cores from beginning to end, with what is known of meetings from earlier rounds."""

    def __init__(
        self, cores: Sequence[Sequence[Instruction]], running: list[Meetings], known: dict[Place, int]
    ) -> None:
        self.cores = cores
        self.running = running
        self.known = known
        self.counts: list[Counter[Hashable]] = [Counter() for _ in running]
        self.came: dict[Place, dict[int, int]] = {}
        self.passed: dict[Place, int] = {}
        self.waits: dict[int, Place] = {}
        self.traces: list[Trace] = []

    def run(self) -> dict[Place, int]:
        """Schedule all cores. Returns the meetings that took place later than a core was told, with their times."""
        traces: dict[int, Trace] = {}
        ready: dict[int, int | None] = dict.fromkeys(range(len(self.running)))
        while ready or self.waits:
            for core, time in ready.items():
                self._go_on(core, time, traces)
            ready = self._released() or self._ahead()
        self.traces = [traces[core] for core in range(len(self.running))]
        late = {place: max(self.came[place].values()) for place in self.passed}
        return {place: time for place, time in late.items() if time > self.passed[place]}

    def _go_on(self, core: int, time: int | None, traces: dict[int, Trace]) -> None:
        steps = self.running[core]
        try:
            index, came = next(steps) if time is None else steps.send(time)
        except StopIteration as end:
            traces[core] = end.value
            return
        key = self.cores[core][index].meeting()
        place = key, self.counts[core][key]
        self.counts[core][key] += 1
        self.came.setdefault(place, {})[core] = came
        self.waits[core] = place

    def _released(self) -> dict[int, int | None]:
        """The waiting cores whose meeting all have come to, and when it takes place."""
        found: dict[int, int | None] = {}
        for core, place in list(self.waits.items()):
            if len(self.came[place]) == len(self.running):
                found[core] = max(self.came[place].values())
                del self.waits[core]
        return found

    def _ahead(self) -> dict[int, int | None]:
        """The first waiting core, if all wait for something else or the others have come to their ends."""
        if not self.waits:
            return {}
        core, place = self.waits.popitem()
        time = max(self.came[place][core], self.known.get(place, 0))
        self.passed[place] = time
        return {core: time}
