"""A staged kernel ready to run: program, plan and time, each made when first needed and kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nki import collector, errors
from nki.arguments import Leaf, to_torch
from nki.dtypes import as_dtype
from nki.ir.order import executed
from nki.ir.program import Buffer, Program
from nki.passes import prepare
from nki.span import capture

if TYPE_CHECKING:
    from interpreter.plan import Plan
    from interpreter.timing.timeline import Timeline
    from nki.frontend.recorded import Dependencies


class Compiled:
    """One program of a kernel's cache.

    strict: whether uninitialised reads are errors; otherwise the memory they see is poisoned.
    """

    def __init__(self, program: Program, dependencies: Dependencies | None = None, *, strict: bool = True) -> None:
        self.program = program
        self.dependencies = dependencies
        self.poisoned = prepare(program, strict=strict)
        if os.environ.get("NKI_CHECK") == "2":
            check_round_trip(program)
        self.mutated = program.mutated
        self._plan: Plan | None = None
        self._timelines: dict[tuple[str, str], Timeline] = {}

    @property
    def plan(self) -> Plan:
        """The prebound calls."""
        if self._plan is None:
            from interpreter.plan import Plan

            with collector.paused():
                self._plan = Plan(self.program, self.poisoned)
        return self._plan

    def timeline(self, schedule: str = "auto", dge: str = "auto") -> Timeline:
        """The time of a program without loops on the device."""
        return self.timed(schedule, dge)[1]

    def timed(
        self, schedule: str = "auto", dge: str = "auto", leaves: list[Leaf] | None = None
    ) -> tuple[Program, Timeline]:
        """The instructions that are executed, and their time. Values are not looked at, unless loops on the device
        depend on them: then the trace of a run on `leaves` is timed, and the result is not kept."""
        key = (schedule, dge)
        found = self._timelines.get(key)
        if found is not None:
            return self.program, found
        program = self.program if self.program.is_flat else self._executed(leaves or [])
        with collector.paused():
            found = _time(program, schedule, dge)
        if program is self.program:
            self._timelines[key] = found
        return program, found

    def _executed(self, leaves: list[Leaf]) -> Program:
        """The program with its loops written out as a run executes them."""
        trips = self.plan.trips
        trips.counts, trips.counting = [], True
        try:
            self._execute(leaves)
        finally:
            trips.counting = False
        counts = iter(trips.counts)
        return replace(self.program, cores=[list(executed(core, counts)) for core in self.program.cores])

    def run(self, leaves: list[Leaf], out: Sequence[np.ndarray] = ()) -> Any:
        """Execute on the caller's tensors. Their arrays change only if the whole run succeeds.

        out: contiguous arrays, one per result, to be written instead of new ones; undefined after a failure.
        """
        return deliver(self.program, leaves, self._execute(leaves, out), self.mutated)

    def _execute(self, leaves: list[Leaf], out: Sequence[np.ndarray] = ()) -> dict[str, np.ndarray]:
        from interpreter.execute import execute
        from interpreter.memory import poison

        program = self.program
        arrays: dict[str, np.ndarray] = {}
        for buffer, leaf in zip(program.arguments, leaves):
            arrays[buffer.name] = leaf.array.copy() if buffer.name in self.mutated else leaf.array
        given = checked_out(program, out)
        for buffer in program.results:
            if buffer.name not in arrays:
                array = given.get(buffer.name)
                arrays[buffer.name] = np.empty(buffer.shape, buffer.dtype.numpy) if array is None else array
                if buffer.name in self.poisoned:
                    poison(arrays[buffer.name])
        execute(self.plan, arrays)
        return arrays


def check_round_trip(program: Program) -> None:
    """The invariant of the text form: a program's text parses back to the same text. Tests set NKI_CHECK=2 for it."""
    from nki.ir.parser import parse_program

    text = str(program)
    again = str(parse_program(text, f"<{program.name}>"))
    if again != text:
        raise errors.KernelError(
            f"the text of {program.name} does not parse back to itself",
            remedy="this is a fault of the printer or the parser; please report it with the kernel",
            span=program.span,
        )


def _time(program: Program, schedule: str, dge: str) -> Timeline:
    from interpreter.timing import time_program
    from nki.passes.dependencies import dependencies

    return time_program(program, dependencies(program), schedule=schedule, dge=dge)


def deliver(program: Program, leaves: list[Leaf], arrays: dict[str, np.ndarray], mutated: set[str]) -> Any:
    """Copy mutated arguments back and hand the results out in the caller's framework."""
    by_name = {buffer.name: leaf for buffer, leaf in zip(program.arguments, leaves)}
    written = [(name, leaf) for name, leaf in by_name.items() if name in mutated]
    for _, leaf in written:
        leaf.check_writable()
    for name, leaf in written:
        leaf.write_back(arrays[name])
    torch_out = any(leaf.is_torch for leaf in leaves)

    def result(buffer: Buffer) -> Any:
        if buffer.name in by_name:
            return by_name[buffer.name].original
        return to_torch(arrays[buffer.name]) if torch_out else arrays[buffer.name]

    if program.result_form == "none":
        return None
    results = tuple(result(buffer) for buffer in program.results)
    return results if program.result_form == "tuple" else results[0]


def checked_out(program: Program, out: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The caller's arrays by the name of the result each one receives."""
    if not out:
        return {}
    wanted = [buffer for buffer in program.results if buffer not in program.arguments]
    shapes = [(buffer.shape, buffer.dtype) for buffer in wanted]
    found = [(array.shape, as_dtype(array.dtype)) for array in out]
    if found != shapes or not all(array.flags.c_contiguous for array in out):
        raise errors.ArgumentError(
            f"{program.name}: these arrays cannot receive the results",
            operand="out",
            found=", ".join(f"{list(shape)} {dtype}" for shape, dtype in found),
            allowed=", ".join(f"{list(shape)} {dtype}" for shape, dtype in shapes) + ", contiguous",
            remedy="pass one array per result that is not an argument, of its shape and dtype",
        )
    return {buffer.name: array for buffer, array in zip(wanted, out)}


def check_arguments(program: Program, leaves: list[Leaf]) -> None:
    """Compare tensors with the recorded shapes and dtypes of a loaded program."""
    if len(leaves) != len(program.arguments):
        raise errors.ArgumentError(
            f"{program.name} takes {len(program.arguments)} tensors, got {len(leaves)}",
            found=f"{len(leaves)} tensors",
            allowed=", ".join(buffer.describe() for buffer in program.arguments),
            remedy="pass one array per recorded argument, in order",
            span=capture(2),
        )
    for buffer, leaf in zip(program.arguments, leaves):
        if tuple(leaf.array.shape) != buffer.shape or leaf.dtype != buffer.dtype:
            raise errors.ArgumentError(
                f"{program.name}: argument `{buffer.name}` was recorded as {list(buffer.shape)} {buffer.dtype}",
                operand=buffer.name,
                found=f"{list(leaf.array.shape)} {leaf.dtype}",
                allowed=f"{list(buffer.shape)} {buffer.dtype}",
                remedy="pass an array of the recorded shape and dtype, or stage the kernel again",
                span=capture(2),
            )
