"""What re-creates a published row: a kernel, its arguments, and which figure of the timeline the row is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from interpreter.timing.timeline import Timeline
from nki.ir.instruction import Instruction
from nki.ir.program import Program, flatten
from nki.jit import Options, split
from nki.target import Target

_PS_PER_NS = 1_000
_PS_PER_US = 1_000_000
_PS_PER_MS = 1_000_000_000


@dataclass(frozen=True)
class Timed:
    """A program as it was timed: what the figures of a row are read from."""

    program: Program
    timeline: Timeline

    def indices(self, mnemonic: str) -> list[int]:
        """Positions of the instructions of that name on the first core, in program order."""
        return [i for i, node in enumerate(self.instructions) if node.mnemonic == mnemonic]

    @property
    def instructions(self) -> list[Instruction]:
        """The first core's."""
        return list(flatten(self.program.cores[0]))


Figure = Callable[[Timed], float]


def device_us(timed: Timed) -> float:
    """First instruction to last semaphore: what a device profile of the kernel alone shows."""
    return timed.timeline.latency_ps / _PS_PER_US


def host_us(timed: Timed) -> float:
    """The same with the fixed cost of a launch: what a benchmark harness reports as the latency of a NEFF."""
    return (timed.timeline.latency_ps + timed.timeline.launch_ps) / _PS_PER_US


def engine_busy_ms(engine: str) -> Figure:
    """How long an engine ("tensor", "vector", ...) was busy."""
    return lambda timed: timed.timeline.engines[engine].busy_ps / _PS_PER_MS


def duration_ns(mnemonic: str, nth: int = 0) -> Figure:
    """Start of one instruction to its result, without the semaphore: what a profiler draws as its bar."""

    def figure(timed: Timed) -> float:
        index = timed.indices(mnemonic)[nth]
        trace = timed.timeline.traces[0]
        signal = timed.timeline.target.semaphore_signal_ps
        return (trace.visible[index] - signal - trace.start[index]) / _PS_PER_NS

    return figure


def interval_ns(mnemonic: str, first: int = 0, last: int = -1) -> Figure:
    """Mean distance between the starts of instructions of one name as time goes, from the `first` to the `last`."""

    def figure(timed: Timed) -> float:
        trace = timed.timeline.traces[0]
        starts = sorted(trace.start[index] for index in timed.indices(mnemonic))
        chosen = starts[first:] if last == -1 else starts[first : last + 1]
        return (chosen[-1] - chosen[0]) / (len(chosen) - 1) / _PS_PER_NS

    return figure


@dataclass(frozen=True)
class Case:
    """One re-created row.

    kernel: a jitted kernel, with its launch grid if it has one.  arguments: what it is called with; values never
    matter.  figure: what is compared.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    figure: Figure = device_us

    def timed(self, target: str | Target, *, schedule: str = "auto", dge: str = "auto") -> Timed:
        """Stage the kernel and time it."""
        plain, grid = split(self.kernel)
        compiled = plain.compiled(Options(target=target, grid=grid, eager=False), self.arguments, {})
        leaves = plain.bind(self.arguments, {}).leaves
        return Timed(*compiled.timed(schedule, dge, leaves))


CASES: dict[str, Callable[[], Case]] = {}
"""How each row of `rows.csv` is made, by its id; filled by the modules of `kernels/`."""


def row(identifier: str, make: Callable[[], Case]) -> None:
    """Register the case of one row. `make` is only called when the row is measured."""
    if identifier in CASES:
        raise ValueError(f"two cases for the row {identifier}")
    CASES[identifier] = make
