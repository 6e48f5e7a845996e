"""Loops that run on the device, and blocks whose order is kept.

The body of such a loop is staged once and is one region of the program. Its counter is a register: Python cannot look
at it, but instructions can, and it may be the `scalar_offset` of an access pattern. Loop state is carried through
tiles and registers made before the loop. In eager mode Python runs the passes, with values in the registers.

`ranges.py` has the loops that are unrolled while staging.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nki import errors
from nki.ir import builder
from nki.ir.builder import Builder
from nki.language.device_loops import Bound, counted_passes, while_passes
from nki.language.instructions import nisa
from nki.registers import VirtualRegister
from nki.span import Span, capture
from nki.tensor import NkiTensor
from nki.views import is_dynamic

_RANGE = 1 << 31


class DeviceRange:
    """What `nl.dynamic_range` makes: a `for` over it is a loop on the device and stages its body once."""

    def __init__(self, bounds: tuple[Bound, Bound, int], span: Span) -> None:
        self.bounds = bounds
        self.span = span

    def __iter__(self) -> Iterator[VirtualRegister]:
        return counted_passes(builder.require("nl.dynamic_range"), self.bounds, "i", self.span, frozen=True)

    def __repr__(self) -> str:
        return f"nl.dynamic_range{self.bounds}"


def dynamic_range(start: Any, stop: Any = None, step: Any = 1) -> DeviceRange:
    """A loop on the device from `start` up to `stop`, which may be registers; `step` is a positive integer.

    The loop variable is a frozen register: it may be read, also as a `scalar_offset`, and not be written. Deprecated;
    write `nl.fori_loop`.

    Example: for i in nl.dynamic_range(n): nisa.dma_copy(dst=tile, src=x.ap([[8, 128], [1, 8]], scalar_offset=i))
    Sources: nki.language.dynamic_range; nki-dynamic-loops.rst; semantics rules 125, 126, 128.
    """
    current = builder.require("nl.dynamic_range")
    span = capture(2)
    bounds = _bounds("dynamic_range", start, stop, step, span)
    text = "nl.dynamic_range is deprecated since NKI 0.6; write nl.fori_loop, or range to unroll the loop"
    current.warn("deprecated", "note", text, span)
    return DeviceRange(bounds, span)


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[VirtualRegister], Any], step: Any = 1) -> None:
    """Run `body_fun(i)` on the device for i from `lower` up to `upper`, which may be registers, by `step`.

    The body gets the value in a register: writing it does not change the course of the loop. It returns nothing; what
    it writes to tiles and registers made before the loop is there afterwards.

    Example: nl.fori_loop(0, n, lambda i: nisa.tensor_tensor(dst=acc, data1=acc, data2=x, op=nl.add))
    Sources: nki.language.fori_loop; semantics rules 127, 128.
    """
    current = builder.require("nl.fori_loop")
    span = capture(2)
    bounds = _bounds("fori_loop", lower, upper, step, span)
    body = _body("fori_loop", current, body_fun, span)
    for counter in counted_passes(current, bounds, _first_parameter(body_fun), span):
        result = body(counter)
        if isinstance(result, (NkiTensor, VirtualRegister, tuple, list)):
            raise errors.ArgumentError(
                "nl.fori_loop: the body returns a value, which a loop on the device cannot carry on",
                operand="body_fun",
                found=type(result).__name__,
                allowed="a body that returns nothing",
                remedy="allocate tiles before the loop and write them in the body",
                span=span,
            )


def while_loop(init: Any, body_fun: Callable[[VirtualRegister], VirtualRegister]) -> None:
    """Run `r = body_fun(r)` on the device as long as the register r, first `init`, is not 0; tested before each pass.

    The body gets the value in a register of its own and returns the register to be tested next.

    Sources: nki.language.while_loop; semantics rules 127, 128.
    """
    current = builder.require("nl.while_loop")
    span = capture(2)
    if not isinstance(init, VirtualRegister):
        raise _no_register("init", init, span)
    body = _body("while_loop", current, body_fun, span)
    condition = VirtualRegister(current.register(_first_parameter(body_fun)))
    nisa.register_move(condition, init)
    for _ in while_passes(current, condition.register, span):
        result = body(condition)
        if not isinstance(result, VirtualRegister):
            raise _no_register("what the body returns", result, span)
        if result.register != condition.register:
            nisa.register_move(condition, result)


@contextmanager
def no_reorder() -> Iterator[None]:
    """Keep the order of the instructions staged inside the block, also by functions called there, on every engine.

    Loops on the device cannot stand inside it; the block may stand inside a loop.

    Example: with nl.no_reorder(): ...
    Sources: nki.language.no_reorder; how-to-scheduling-apis.rst; semantics rule 128.
    """
    current = builder.require("nl.no_reorder")
    current.program.flags.add("fixed_order")
    outer, current.refuses_loops = current.refuses_loops, "nl.no_reorder()"
    try:
        yield
    finally:
        current.refuses_loops = outer


def _body(name: str, current: Builder, function: Any, span: Span) -> Callable[[VirtualRegister], Any]:
    """The body as it is to be called: recorded and rewritten like every function that a kernel calls."""
    if not callable(function):
        raise errors.ArgumentError(
            f"nl.{name}: `body_fun` must be a function, got {type(function).__name__}",
            operand="body_fun",
            found=f"{function!r:.80}",
            allowed="a function of one register",
            remedy=f"define the body first: def body(i): ...; nl.{name}(..., body)",
            span=span,
        )
    return current.call(function) if current.call is not None else function  # type: ignore[no-any-return]


def _first_parameter(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return code.co_varnames[0] if code is not None and code.co_argcount == 1 else "i"


def _bounds(name: str, start: Any, stop: Any, step: Any, span: Span) -> tuple[Bound, Bound, int]:
    if stop is None:
        start, stop = 0, start
    if (
        isinstance(step, (bool, np.bool_))
        or is_dynamic(step)
        or not hasattr(step, "__index__")
        or operator.index(step) < 1
    ):
        raise errors.LoopStepError(
            f"nl.{name}: the step must be a positive integer known while staging",
            operand="step",
            found=f"{step!r:.80}",
            allowed="an integer of at least 1",
            remedy="multiply the counter on the device, or count up",
            span=span,
        )
    return _bound(name, start, span), _bound(name, stop, span), operator.index(step)


def _bound(name: str, value: Any, span: Span) -> Bound:
    if isinstance(value, VirtualRegister):
        return value.register
    number = operator.index(value) if hasattr(value, "__index__") and not is_dynamic(value) else None
    if number is not None and -_RANGE <= number < _RANGE:
        return number
    tensor = isinstance(value, NkiTensor)
    raise errors.ArgumentError(
        f"nl.{name}: a bound must be an integer or a register, got {type(value).__name__}",
        found=f"{value!r:.80}",
        allowed="32-bit integers and registers",
        remedy="load it into a register: nisa.register_load(r, tensor)"
        if tensor
        else "pass an int or a register",
        span=span,
    )


def _no_register(what: str, value: Any, span: Span) -> errors.NkiError:
    return errors.ArgumentError(
        f"nl.while_loop: {what} must be a register, got {type(value).__name__}",
        found=f"{value!r:.80}",
        allowed="a register made with nisa.register_alloc",
        remedy="def body(r): ...; nisa.register_load(r, flag); return r",
        span=span,
    )
