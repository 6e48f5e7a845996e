"""How an instruction class becomes the function that kernels call, and the handle that the call returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki import errors
from nki.ir.builder import issue
from nki.ir.instruction import Instruction
from nki.objects import NKIObject
from nki.span import capture


class NkiInstruction(NKIObject):
    """Handle of a staged instruction; `depends_on` adds ordering edges (they change time, never values)."""

    def __init__(self, handle: Instruction) -> None:
        self.handle = handle

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Make this instruction wait for every producer. Returns itself, so calls chain."""
        for producer in producers:
            if not isinstance(producer, NkiInstruction):
                raise errors.ArgumentError(
                    f"depends_on takes the handles that nki.isa calls return, got {type(producer).__name__}",
                    operand="producers",
                    found=repr(producer)[:80],
                    allowed="NkiInstruction",
                    remedy="keep the result of the producing call: p = nisa.dma_copy(...)",
                    span=capture(2),
                )
        self.handle.after += tuple(p.handle for p in producers)
        return self

    def __repr__(self) -> str:
        return f"<NkiInstruction {self.handle.mnemonic}>"


def instruction(cls: type[Instruction]) -> Callable[..., NkiInstruction]:
    """Export a class as a function of the same name with the documented `__signature__` (decorator)."""

    def call(*args: Any, **kwargs: Any) -> NkiInstruction:
        return NkiInstruction(issue(cls, args, kwargs))

    call.__name__ = call.__qualname__ = cls.__name__
    call.__doc__ = cls.__doc__
    call.__module__ = cls.__module__
    call.__signature__ = cls.signature  # type: ignore[attr-defined]
    call.instruction = cls  # type: ignore[attr-defined]
    return call
