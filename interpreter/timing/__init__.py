"""Time: how long a program takes on a target, and why. Values are never looked at.

Reading order: `timeline.py` (the answer), `charges.py` and `dma.py` (what an instruction costs), `resources.py` (what
is shared), `schedule.py`, `in_order.py` and `out_of_order.py` (when everything happens), `together.py` (several cores),
`report.py` and `critical.py` (why).
"""

from __future__ import annotations

from collections.abc import Sequence

from interpreter.timing.charges import Charge, charge_of, without_contention
from interpreter.timing.in_order import InOrder
from interpreter.timing.out_of_order import OutOfOrder
from interpreter.timing.schedule import Meetings
from interpreter.timing.timeline import Timeline
from interpreter.timing.together import run_together
from interpreter.timing.turns import turns_of
from nki.ir.dependency import Dependency
from nki.ir.order import Test
from nki.ir.program import Program, flatten
from nki.target import Target

__all__ = ["Timeline", "time_program"]


def time_program(
    program: Program,
    dependencies: Sequence[Sequence[Sequence[Dependency]]],
    tests: Sequence[Sequence[Test]] = (),
    *,
    schedule: str = "auto",
    dge: str = "auto",
    target: Target | None = None,
) -> Timeline:
    """The timeline of a finished program.

    The program has its loops written out. dependencies: per core and instruction, as `nki.passes.dependencies` finds
    them. tests: per core, the turns of its loops on the device.
    schedule: "program" keeps every queue in the order as written, "compiler" lets loads run ahead and stores lag
    behind, "auto" takes "program" if the kernel fixes its own order. dge: "static" prepares all DMA descriptors
    before the run.
    target: another machine than the program's own, e.g. one with a changed number.
    """
    machine = target or program.target
    if schedule == "auto":
        schedule = "program" if "fixed_order" in program.flags else "compiler"
    known: dict[object, Charge] = {}
    cores = [list(flatten(nodes)) for nodes in program.cores]
    costs: list[list[Charge]] = []
    for instructions in cores:
        charges = []
        for instruction in instructions:
            key = instruction.key()
            charge = known.get(key)
            if charge is None:
                charge = known[key] = charge_of(instruction, machine, dge == "static")
            charges.append(charge)
        costs.append(charges)
    without_contention(known.values())

    def start(core: int) -> Meetings:
        turns = turns_of(tests[core], costs[core], cores[core]) if tests else []
        kind = OutOfOrder if schedule == "compiler" else InOrder
        return kind(core, cores[core], costs[core], machine, turns).run(dependencies[core])

    traces = run_together(cores, start)
    launch = machine.launch_start_ps + machine.launch_end_ps

    def again(other: Target, order: str) -> Timeline:
        return time_program(program, dependencies, tests, schedule=order, dge=dge, target=other)

    return Timeline(machine, schedule, launch, tuple(traces), again)
