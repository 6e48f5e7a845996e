"""Python's loops and tests over values of the device: what the hooks of a staging make of them.

`for i in nl.dynamic_range(...)` and `while reg:` become one region of the program, and their body is staged once. All
other tests of a register are refused: its value does not exist while staging.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from nki import errors
from nki.frontend.hooks import HostHooks
from nki.frontend.recorded import Dependencies
from nki.ir.builder import Builder
from nki.language.device_loops import left_early, while_passes
from nki.language.loops import DeviceRange
from nki.registers import VirtualRegister
from nki.span import Span, capture


class DeviceLoops(HostHooks):
    """Hooks that know loops on the device. `open_loops` are those whose body is being staged: function, line, span."""

    def __init__(self, builder: Builder, dependencies: Dependencies) -> None:
        super().__init__(dependencies)
        self.builder = builder
        self.open_loops: list[tuple[CodeType, int, Span]] = []

    def iterate(self, iterable: Any, line: int) -> Iterable[Any]:
        """The passes of a loop on the device; anything else unchanged."""
        if isinstance(iterable, DeviceRange):
            return self._open(iter(iterable), (sys._getframe(1).f_code, line, iterable.span))
        return iterable  # type: ignore[no-any-return]

    def while_loop(self, test: Callable[[], Any], line: int) -> Iterable[object]:
        """One item for each time the test holds; a register as the test is a loop on the device."""
        return self._while(test, sys._getframe(1).f_code, line)

    def leave(self, kind: str, lines: tuple[int, ...]) -> None:
        """Refuse to leave the body of a loop on the device."""
        if not self.open_loops:
            return
        code = sys._getframe(1).f_code
        for function, line, span in reversed(self.open_loops):
            if function is code and line in lines:
                raise left_early(kind, span).at(capture(2))

    def test(self, value: Any, kind: str, line: int) -> Any:
        """`value` itself, unless it is a register."""
        if isinstance(value, VirtualRegister):
            raise _no_value(value, kind)
        return value

    def _open(self, passes: Iterator[Any], loop: tuple[CodeType, int, Span]) -> Iterator[Any]:
        self.open_loops.append(loop)
        try:
            yield from passes
        finally:
            self.open_loops.pop()

    def _while(self, test: Callable[[], Any], code: CodeType, line: int) -> Iterator[object]:
        value = test()
        while not isinstance(value, VirtualRegister):
            if not self.test(value, "while", line):
                return
            yield None
            value = test()
        span = capture(2)
        for item in self._open(while_passes(self.builder, value.register, span), (code, line, span)):
            yield item
            now = test()
            if not isinstance(now, VirtualRegister) or now.register != value.register:
                raise errors.SubsetError(
                    f"the loop tests the register `{value.register.name}`, and its body gives another object that name",
                    found=type(now).__name__,
                    allowed="a condition that stays one register",
                    remedy="write the new value into the register: nisa.register_move(reg, other)",
                    span=span,
                )


def _no_value(value: VirtualRegister, kind: str) -> errors.NkiError:
    """The error for a test of a register that is not a loop on the device."""
    loop = kind == "while"
    return errors.TruthValueError(
        f"`{kind}` needs a value while staging; the register `{value.register.name}` has one only on the device",
        found="a register",
        allowed="values of Python; a register alone as the condition of a loop: `while reg:`",
        remedy=(
            "write the register alone: `while reg:`, and compute the condition into it"
            if loop
            else "compute both ways and select with nisa.select_reduce or masks, or address with scalar_offset=reg"
        ),
        span=capture(3),
    )
