"""What lanes share: ports, banks, DMA engines, and an engine whose queue is split.

All sharing follows one rule that depends on the program's order only, never on the outcome of a race: a use waits for
the uses before it in program order, counted from the moment the first of them was ready. So a queue that is held up
never blocks another one, no resource does more work than it can over such a run (within one, two queues may seem to
use it at once), and a delay anywhere never makes anything else faster.
"""

from __future__ import annotations


class Shared:
    """A resource that serves one use at a time; uses are told in program order.

    The finish of a use is the largest, over every run of consecutive uses that ends with it, of the run's earliest
    ready time plus the run's work. Runs are kept on a stack with growing ready times; those that can never decide are
    dropped.
    """

    __slots__ = ("_runs", "_work")

    def __init__(self) -> None:
        self._runs: list[
            tuple[int, int, int]
        ] = []  # earliest ready, work before the run, best (ready - work) so far
        self._work = 0

    def serve(self, ready: int, service: int) -> int:
        """When a use of `service` ps that is ready at `ready` is finished."""
        runs = self._runs
        before = self._work
        while runs and runs[-1][0] >= ready:
            before = runs.pop()[1]
        best = ready - before
        if runs and runs[-1][2] >= best:
            best = runs[-1][2]
        else:
            runs.append((ready, before, best))
        self._work += service
        return best + self._work

    def copy(self) -> Shared:
        """The same state, to go its own way from here."""
        other = Shared()
        other._runs = self._runs.copy()
        other._work = self._work
        return other


class DmaEngines:
    """The DMA engines of a core. Engines that have always had equal work are simulated as one."""

    def __init__(self, count: int) -> None:
        self._groups: list[tuple[Shared, list[int]]] = [(Shared(), list(range(count)))]
        self._plans: dict[int, list[tuple[Shared, int]]] = {}
        self._known: list[tuple[int, ...]] = []  # what the keys of the plans are ids of

    def serve(self, ready: int, services: tuple[int, ...]) -> int:
        """When the last engine has moved its part; `services` says how long each engine is busy, always by the same
        object for DMAs of one kind."""
        plan = self._plans.get(id(services))
        if plan is None:
            plan = self._plan(services)
        finish = ready
        for shared, service in plan:
            done = shared.serve(ready, service)
            if done > finish:
                finish = done
        return finish

    def _plan(self, services: tuple[int, ...]) -> list[tuple[Shared, int]]:
        """Which groups serve, for how long; groups whose engines now differ are split."""
        groups: list[tuple[Shared, list[int]]] = []
        for shared, members in self._groups:
            apart: dict[int, list[int]] = {}
            for member in members:
                apart.setdefault(services[member], []).append(member)
            first, *rest = apart.values()
            groups.append((shared, first))
            groups += [(shared.copy(), part) for part in rest]
        if len(groups) != len(self._groups):
            self._groups = groups
            self._plans.clear()
        plan = [(shared, services[members[0]]) for shared, members in groups if services[members[0]]]
        self._plans[id(services)] = plan
        self._known.append(services)
        return plan
