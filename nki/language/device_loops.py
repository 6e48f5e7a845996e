"""The passes of a loop on the device: one while staging, in a region of the program, all of them in eager mode.

`loops.py` has the functions that kernels call, `nki/frontend/device_loops.py` what Python's own loops become.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from nki import errors
from nki.ir.builder import Builder
from nki.ir.control import Loop, Register
from nki.ir.instruction import Instruction
from nki.ir.program import flatten
from nki.ir.scopes import staged_in
from nki.language.instructions import nisa
from nki.registers import VirtualRegister
from nki.span import Span

Bound = Union[int, Register]  # noqa: UP007 - evaluated on Python 3.10 too


def counted_passes(
    current: Builder, bounds: tuple[Bound, Bound, int], label: str, span: Span, *, frozen: bool = False
) -> Iterator[VirtualRegister]:
    """Open a counting loop and give out its counter: once while staging, in eager mode for every pass."""
    start, stop, step = bounds
    counter = current.register(label, frozen=frozen)
    variable = VirtualRegister(counter)
    registers = current.registers
    with current.loop(Loop("for", counter=counter, start=start, stop=stop, step=step, span=span)) as loop:
        if registers is None:
            yield from _pass(current, loop, variable)
            if not frozen:
                _by_value(current, loop, variable)
            return
        first, last = (int(registers(b)[0]) if isinstance(b, Register) else b for b in (start, stop))
        pure = _SamePasses(current, loop)
        for value in range(first, last, step):
            registers(counter)[0] = value
            yield from _pass(current, loop, variable)
            pure.check()


class _SamePasses:
    """In eager mode, the check that a body stages the same in every pass, as the device runs what the first one was."""

    def __init__(self, current: Builder, loop: Loop) -> None:
        self.current = current
        self.loop = loop
        self.first: list[object] | None = None
        self.place = len(current.block)

    def staged(self) -> list[Instruction]:
        """What the pass that has just ended staged."""
        return list(flatten(self.current.block[self.place :]))

    def check(self) -> None:
        """Compare the pass that has just ended with the first."""
        found = staged_in(self.loop, self.staged())
        self.place = len(self.current.block)
        if self.first is None:
            self.first = found
        elif found != self.first:
            raise errors.SubsetError(
                "the body of this loop stages other instructions in a later pass than in the first",
                found="a body that depends on Python variables which it changes",
                allowed="bodies that are alike in every pass: a loop on the device is staged once",
                remedy="carry state through tiles and registers, or unroll the loop with range",
                span=self.loop.span,
            )


def _by_value(current: Builder, loop: Loop, variable: VirtualRegister) -> None:
    """A body that writes its counter writes a copy of it; nothing else can, so that the loop counts undisturbed."""
    counter = variable.register
    if not any(counter in node.registers_written() for node in flatten(loop.body)):
        counter.frozen = True
        return
    loop.counter = current.register(counter.name, frozen=True)
    del current.counters[counter]
    current.counters[loop.counter] = loop
    nisa.register_move(variable, VirtualRegister(loop.counter))
    current.block.insert(0, current.block.pop())


def while_passes(current: Builder, condition: Register, span: Span) -> Iterator[VirtualRegister]:
    """Open a loop over a register, tested before each pass: one pass while staging, all of them in eager mode."""
    registers = current.registers
    variable = VirtualRegister(condition)
    with current.loop(Loop("while", condition=condition, span=span)) as loop:
        pure = _SamePasses(current, loop)
        while registers is None or registers(condition)[0]:
            yield from _pass(current, loop, variable)
            if not any(condition in node.registers_written() for node in pure.staged()):
                raise _endless(condition, span)
            if registers is None:
                return
            pure.check()


def _pass(current: Builder, loop: Loop, variable: VirtualRegister) -> Iterator[VirtualRegister]:
    """One pass; a body that is left in the middle is noted, because a generator cannot raise while it is closed."""
    try:
        yield variable
    except GeneratorExit:
        current.fault = left_early("break or return", loop.span)
        raise


def left_early(how: str, span: Span) -> errors.SubsetError:
    """The error for a `break`, `continue` or `return` in the body of a loop on the device."""
    return errors.SubsetError(
        f"`{how}` cannot leave the body of a loop on the device: it is staged once and decided while staging",
        found=f"a loop on the device at {span}",
        allowed="bodies that run from their first to their last statement in every pass",
        remedy="end the loop through its register (`while reg:`), or make the loop a `range` that is unrolled",
    )


def _endless(condition: Register, span: Span) -> errors.NkiError:
    return errors.KernelError(
        f"this loop never ends: nothing in its body writes the register `{condition.name}`",
        found=f"while `{condition.name}` is not 0",
        allowed="a body that updates the register which is tested",
        remedy="write it in the body: nisa.register_load(reg, flag), or nisa.register_move(reg, ...)",
        span=span,
    )
