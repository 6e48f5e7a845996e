"""A staged kernel ready to run: program, plan and time, each made when first needed and kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nki import collector, errors
from nki.arguments import Leaf, to_torch
from nki.artifacts import keep
from nki.dtypes import as_dtype, cast_into
from nki.ir.order import executed, is_decided
from nki.ir.program import Buffer, Program
from nki.passes import prepare, widened
from nki.passes.dependencies import dependencies as order_of
from nki.span import capture

if TYPE_CHECKING:
    from interpreter.plan import Plan
    from interpreter.timing.timeline import Timeline
    from nki.frontend.recorded import Dependencies
    from nki.ir.dependency import Dependency


class Compiled:
    """One program of a kernel's cache.

    strict: whether uninitialised reads are errors; otherwise the memory they see is poisoned.
    precise: whether narrow floats are stored as themselves, or as float32 (NKI_PRECISE_FP=0).
    """

    def __init__(
        self, program: Program, dependencies: Dependencies | None = None, *, strict: bool = True
    ) -> None:
        self.program = program
        self.dependencies = dependencies
        self.precise = precise()
        self.poisoned = prepare(program, strict=strict)
        if os.environ.get("NKI_CHECK") == "2":
            check_round_trip(program)
        keep(program)
        self.mutated = program.mutated
        self._plan: Plan | None = None
        self._waits: list[list[list[Dependency]]] | None = None
        self._timelines: dict[tuple[str, str], tuple[Program, Timeline]] = {}

    @property
    def plan(self) -> Plan:
        """The prebound calls."""
        if self._plan is None:
            from interpreter.plan import Plan

            with collector.paused():
                self._plan = Plan(self.program if self.precise else widened(self.program), self.poisoned)
        return self._plan

    def timeline(self, schedule: str = "auto", dge: str = "auto") -> Timeline:
        """The time of a program whose loops on the device have bounds known while staging."""
        return self.timed(schedule, dge)[1]

    @property
    def waits(self) -> list[list[list[Dependency]]]:
        """What each instruction of a program without loops waits for, per core."""
        if self._waits is None:
            with collector.paused():
                self._waits = order_of(self.program)
        return self._waits

    def timed(
        self, schedule: str = "auto", dge: str = "auto", leaves: list[Leaf] | None = None
    ) -> tuple[Program, Timeline]:
        """The instructions that are executed, and their time. Values are not looked at, unless loops on the device
        depend on them: then the trace of a run on `leaves` is timed, and the result is not kept."""
        from interpreter.timing import time_program

        key = (schedule, dge)
        found = self._timelines.get(key)
        if found is not None:
            return found
        cores = self.program.cores
        decided = all(map(is_decided, cores))
        trips: list[list[int]] = [[] for _ in cores]
        if not decided:
            check_arguments(self.program, leaves or [])
            self._execute(leaves or [], trips=trips)
        with collector.paused():
            runs = [executed(core, iter(counts)) for core, counts in zip(cores, trips)]
            program = self.program
            if not program.is_flat:  # loops written out as the run executes them
                program = replace(program, cores=[[*run.instructions] for run in runs])
            tests = [run.tests for run in runs]
            waits = self.waits if program is self.program else order_of(program, tests)
            timed = program, time_program(program, waits, tests, schedule=schedule, dge=dge)
        if decided:
            self._timelines[key] = timed
        return timed

    def run(self, leaves: list[Leaf], out: Sequence[np.ndarray] = ()) -> Any:
        """Execute on the caller's tensors. Their arrays change only if the whole run succeeds.

        out: contiguous arrays, one per result, to be written instead of new ones; undefined after a failure.
        """
        return deliver(self.program, leaves, self._execute(leaves, out), self.mutated)

    def _execute(
        self, leaves: list[Leaf], out: Sequence[np.ndarray] = (), trips: list[list[int]] | None = None
    ) -> dict[str, np.ndarray]:
        from interpreter.execute import execute
        from interpreter.memory import poison

        program, stored = self.program, self.plan.external
        arrays: dict[str, np.ndarray] = {}
        for buffer, leaf in zip(program.arguments, leaves):
            kind = stored[buffer.name].dtype.numpy
            changes = buffer.name in self.mutated or kind != leaf.array.dtype
            arrays[buffer.name] = _converted(leaf.array, kind) if changes else leaf.array
        given = checked_out(program, out)
        for buffer in program.results:
            if buffer.name not in arrays:
                kind = stored[buffer.name].dtype.numpy
                array = given.get(buffer.name) if kind == buffer.dtype.numpy else None
                arrays[buffer.name] = np.empty(buffer.shape, kind) if array is None else array
                if buffer.name in self.poisoned:
                    poison(arrays[buffer.name])
        execute(self.plan, arrays, trips)
        for buffer in (*program.arguments, *program.results):
            array, changed = arrays[buffer.name], buffer.role != "argument" or buffer.name in self.mutated
            if changed and array.dtype != buffer.dtype.numpy:
                arrays[buffer.name] = _converted(array, buffer.dtype.numpy, given.get(buffer.name))
        return arrays


def precise() -> bool:
    """Whether narrow floats are stored as themselves: NKI_PRECISE_FP, on unless it is 0."""
    return os.environ.get("NKI_PRECISE_FP", "").strip() != "0"


def require_precise(name: str) -> None:
    """Eager mode makes each tile before it knows how the tile will be seen, so it cannot store another type."""
    if not precise():
        raise errors.ArgumentError(
            f"{name}: eager mode cannot be combined with NKI_PRECISE_FP=0",
            found="NKI_PRECISE_FP=0, with NKI_EAGER, eager=True or a breakpoint() in the kernel",
            allowed="one of the two",
            remedy="unset NKI_PRECISE_FP to look at values, or show them with nl.device_print",
            span=capture(3),
        )


def _converted(array: np.ndarray, kind: np.dtype[Any], out: np.ndarray | None = None) -> np.ndarray:
    """A copy of the array in another storage type."""
    made = np.empty(array.shape, kind) if out is None else out
    if kind == array.dtype:
        np.copyto(made, array)
    else:
        with np.errstate(all="ignore"):
            cast_into(made, array)
    return made


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
