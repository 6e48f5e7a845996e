"""Time: how long a program takes on a target, and why. Values are never looked at.

Reading order: `timeline.py` (the answer), `charges.py` and `dma.py` (what an instruction costs), `resources.py` (what
is shared), `schedule.py` (when everything happens), `report.py` and `critical.py` (why).
"""

from __future__ import annotations

from collections.abc import Sequence

from interpreter.timing.charges import Charge, charge_of
from interpreter.timing.schedule import CoreSchedule
from interpreter.timing.timeline import Timeline
from nki.ir.dependency import Dependency
from nki.ir.program import Program
from nki.target import Target

__all__ = ["Timeline", "time_program"]


def time_program(
    program: Program,
    dependencies: Sequence[Sequence[Sequence[Dependency]]],
    *,
    schedule: str = "auto",
    dge: str = "auto",
    target: Target | None = None,
) -> Timeline:
    """The timeline of a finished program.

    dependencies: per core and instruction, as `nki.passes.dependencies` finds them.
    schedule: "program" keeps every queue in the order as written, "compiler" lets loads run ahead and stores lag
    behind, "auto" takes "program" if the kernel fixes its own order. dge: "static" prepares all DMA descriptors
    before the run.
    target: another machine than the program's own, e.g. one with a changed number.
    """
    machine = target or program.target
    if schedule == "auto":
        schedule = "program" if "fixed_order" in program.flags else "compiler"
    known: dict[object, Charge] = {}
    traces = []
    for core, instructions in enumerate(program.cores):
        charges = []
        for instruction in instructions:
            key = instruction.key()
            charge = known.get(key)
            if charge is None:
                charge = known[key] = charge_of(instruction, machine, dge == "static")
            charges.append(charge)
        state = CoreSchedule(core, instructions, charges, machine, schedule == "compiler")
        traces.append(state.run(dependencies[core]))
    launch = machine.launch_start_ps + machine.launch_end_ps
    return Timeline(machine, schedule, launch, tuple(traces))
