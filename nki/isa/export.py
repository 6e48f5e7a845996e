"""How an instruction class becomes the function that kernels call, and the handle that the call returns."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature
from typing import Any

from nki import errors
from nki.dtypes import as_dtype
from nki.ir.builder import current, issue, require
from nki.ir.instruction import Instruction
from nki.ir.program import Access
from nki.ir.schedule import FIXED_ORDER, check_nesting
from nki.isa.removed import KEYWORDS
from nki.objects import NKIObject
from nki.registers import VirtualRegister
from nki.span import capture


class NkiInstruction(NKIObject):
    """Handle of a staged instruction; `depends_on` adds ordering edges (they change time, never values)."""

    def __init__(self, handle: Instruction) -> None:
        self.handle = handle

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Make this instruction wait for every producer, which is in the same loop body on the device or outside of the
        loops around this one. Returns itself, so calls chain."""
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
            try:
                check_nesting(self.handle, producer.handle)
            except errors.NkiError as error:
                raise error.at(capture(2)) from None
        self.handle.after += tuple(p.handle for p in producers)
        builder = current()
        if builder is not None:
            builder.program.flags.add(FIXED_ORDER)
        return self

    def __repr__(self) -> str:
        return f"<NkiInstruction {self.handle.mnemonic}>"


def instruction(cls: type[Instruction]) -> Callable[..., Any]:
    """Export a class as a function of the same name with the documented `__signature__` (decorator).

    The function returns the handle of the instruction, or the register that a call of this class `creates`.
    """

    def call(*args: Any, **kwargs: Any) -> NkiInstruction:
        try:
            return NkiInstruction(issue(cls, args, kwargs))
        except errors.UnknownKeywordError as error:
            if error.operand == "dtype" and _names_dtype(cls, args, kwargs):
                kwargs.pop("dtype")
                return call(*args, **kwargs)
            error.remedy = KEYWORDS.get(error.operand or "", error.remedy)
            raise

    def create(*args: Any, **kwargs: Any) -> VirtualRegister:
        return _created(cls, args, kwargs)

    return _documented(create if cls.creates else call, cls)


def _names_dtype(cls: type[Instruction], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call names the dtype of its destination as older releases wanted it and published kernels still do. The
    destination decides: the keyword is dropped with a note, as the compiler of release 0.6 refuses it, or with a
    warning if it says something else."""
    access = getattr(kwargs.get("dst", args[0] if args else None), "access", None)
    builder = current()
    if builder is None or not isinstance(access, Access):
        return False
    try:
        same = as_dtype(kwargs["dtype"]) == access.dtype
    except errors.DtypeError:
        return False
    ignored = "" if same else f"; {kwargs['dtype']} is ignored, `dst` is {access.dtype}"
    text = f"{cls.mnemonic}: the keyword `dtype` was removed: {KEYWORDS['dtype']}{ignored}"
    builder.warn("dtype-keyword", "note" if same else "warning", text, capture(2))
    return True


def _created(cls: type[Instruction], args: tuple[Any, ...], kwargs: dict[str, Any]) -> VirtualRegister:
    shown = _signature(cls)
    if cls.creates in kwargs or len(args) > len(shown.parameters):
        raise errors.ArgumentError(
            f"{cls.mnemonic}() makes its register itself",
            found=f"{len(args)} positional arguments, keywords {list(kwargs)}",
            allowed=f"{cls.mnemonic}{shown}",
            remedy=f"write register = {cls.namespace}.{cls.mnemonic}(...)",
            span=capture(3),
        )
    register = require(f"{cls.namespace}.{cls.mnemonic}").register()
    issue(cls, args, {**kwargs, cls.creates: register})
    return VirtualRegister(register)


def _signature(cls: type[Instruction]) -> Signature:
    shown = [p for name, p in cls.signature.parameters.items() if name != cls.creates]
    return cls.signature.replace(parameters=shown)


def _documented(call: Callable[..., Any], cls: type[Instruction]) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = cls.__name__
    call.__doc__ = cls.__doc__
    call.__module__ = cls.__module__
    call.__signature__ = _signature(cls)  # type: ignore[attr-defined]
    call.instruction = cls  # type: ignore[attr-defined]
    return call
