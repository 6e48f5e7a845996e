"""Staging: the rewritten kernel runs under CPython with symbolic tiles, and a program is what it leaves behind."""

from __future__ import annotations

import ast
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from nki import errors
from nki.arguments import Arguments, Leaf
from nki.enums import MemoryRegion
from nki.errors import Diagnostic
from nki.frontend.callsite import call_site_name
from nki.frontend.hooks import HostHooks
from nki.frontend.recorded import Dependencies
from nki.frontend.rewrite import rewrite_kernel
from nki.frontend.source import function_source
from nki.frontend.subset import check_subset
from nki.ir.builder import Builder
from nki.ir.program import Access, Buffer, Program
from nki.span import UNKNOWN, Frame, Span, from_traceback, is_user_code, shown_file, stop_at
from nki.tensor import NkiTensor


class NeedsEager(Exception):
    """The kernel calls `breakpoint()`: it must be run eagerly, so that the debugger sees values."""


class StagingHooks(HostHooks):
    """Follows calls into user functions, checks each against the subset, and looks out for `breakpoint()`."""

    def __init__(self, builder: Builder, dependencies: Dependencies, breakpoints: str) -> None:
        super().__init__(dependencies)
        self.builder = builder
        self.breakpoints = breakpoints

    def call(self, function: Any) -> Any:
        if function is breakpoint and self.breakpoints == "skip":
            return _ignore
        return super().call(function)

    def _enter(self, function: FunctionType) -> FunctionType:
        before = len(self.reached)
        changed = super()._enter(function)
        for reached in self.reached[before:]:
            self.enter_source(reached)
        return changed

    def enter_source(self, function: Callable[..., Any], *, kernel: bool = False) -> None:
        """Check the source of a user function that is about to run."""
        code = getattr(function, "__code__", None)
        if code is not None and self.breakpoints != "stop" and _uses_breakpoint(code):
            if self.breakpoints == "refuse":
                raise NeedsEager
            if self.dependencies is not None:
                self.dependencies.refuse("a kernel with breakpoints, which were skipped")
        source = function_source(function)
        if source is None:
            return
        for found in check_subset(source, kernel=kernel):
            if found.severity == "error":
                frame = Frame(shown_file(found.file), found.line, source.name, found.col, found.end_col)
                raise errors.SubsetError(found.message, remedy=found.remedy, span=Span((frame,)))
            self.builder.program.diagnostics.append(
                Diagnostic(found.code, found.severity, found.message, shown_file(found.file), found.line)
            )


def stage(
    kernel: Callable[..., Any],
    arguments: Arguments,
    builder: Builder,
    *,
    breakpoints: str = "refuse",
) -> tuple[Program, Dependencies]:
    """Run `kernel` symbolically on the arguments' shapes and dtypes. Returns the program and what it depends on.

    breakpoints: whether `breakpoint()` in the kernel is to "stop" (there are values to look at), to be "skip"ped, or
    "refuse"d with `NeedsEager`.
    Every error that leaves is an `NkiError` placed in the user's source.
    """
    dependencies = Dependencies()
    for function_or_class in (kernel, *arguments.classes):
        dependencies.record(function_or_class)
    hooks = StagingHooks(builder, dependencies, breakpoints)
    builder.name_of_tile = _name_of_tile
    builder.call = hooks.call
    program = builder.program
    program.span = _return_span(kernel)
    with builder:
        place = _definition_span(kernel)
        tensors = [_argument(builder, leaf, place) for leaf in arguments.leaves]
        program.arguments = [tensor.access.buffer for tensor in tensors]
        try:
            hooks.enter_source(kernel, kernel=True)
            for core in range(builder.grid or 1):
                builder.begin_core(core)
                values = OrderedDict(arguments.filled(tensors))
                call = inspect.BoundArguments(inspect.signature(kernel), values)
                _set_results(program, _run(rewrite_kernel(kernel, hooks), call), core)
        except NeedsEager:
            raise
        except errors.NkiError as error:
            if error.span is None or error.span is UNKNOWN:
                error.span = from_traceback(error)
            raise
        except Exception as error:
            raise _user_error(error) from error
    return program, dependencies


def _run(kernel: Callable[..., Any], call: inspect.BoundArguments) -> Any:
    """The border of user code: no user frame is looked for below this one."""
    return kernel(*call.args, **call.kwargs)


stop_at(_run.__code__)


def _ignore(*args: Any, **kwargs: Any) -> None:
    """What `breakpoint()` does where there is nothing to look at."""


def _uses_breakpoint(code: CodeType) -> bool:
    """Whether `breakpoint` is named in a function or in one defined inside it."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return "breakpoint" in code.co_names or any(map(_uses_breakpoint, inner))


def _argument(builder: Builder, leaf: Leaf, span: Span) -> NkiTensor:
    shape = tuple(leaf.array.shape)
    buffer = builder.buffer(
        shape, leaf.dtype, MemoryRegion.shared_hbm, label=leaf.name, role="argument", span=span
    )
    return NkiTensor._of(Access.whole(buffer))


def _name_of_tile() -> str | None:
    """The variable that receives the tile being allocated, from the innermost user frame."""
    frame = sys._getframe(2)
    while frame is not None:
        if is_user_code(frame.f_code):
            return call_site_name(frame.f_code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _user_error(error: Exception) -> errors.NkiError:
    """An exception of the kernel's own code as an error of ours that is still of the original type."""
    span = from_traceback(error)
    text = str(error)
    if isinstance(error, AssertionError):
        return errors.UserAssertionError(text or "an assertion of the kernel failed", span=span)
    kind = type(error)
    text = f"{kind.__name__}: {text}" if text else kind.__name__
    try:
        placed = type("UserError", (errors.UserError, kind), {"__module__": "nki.errors"})
        wrapped: errors.NkiError = placed(text, span=span)
    except TypeError:  # a class that cannot be derived from, or made of one argument
        return errors.UserError(text, span=span)
    for name, value in vars(error).items():
        if not hasattr(wrapped, name):
            setattr(wrapped, name, value)
    return wrapped


def _set_results(program: Program, result: Any, core: int) -> None:
    """Note what the kernel returned; all cores return the same tensors."""
    several = isinstance(result, (tuple, list))
    form = "none" if result is None else "tuple" if several else "one"
    items = () if result is None else tuple(result) if several else (result,)
    buffers = [_result(program, item, position if several else None) for position, item in enumerate(items)]
    if core and (form != program.result_form or buffers != program.results):
        raise errors.ReturnError(
            f"core {core} returns other tensors than core 0",
            found=", ".join(buffer.describe() for buffer in buffers) or "nothing",
            allowed=", ".join(buffer.describe() for buffer in program.results) or "nothing",
            remedy="return the same tensors of shared HBM on every core",
            span=program.span,
        )
    program.result_form, program.results = form, buffers


def _result(program: Program, item: Any, position: int | None) -> Buffer:
    what = "the returned value" if position is None else f"returned value {position}"
    if not isinstance(item, NkiTensor):
        raise errors.ReturnError(
            f"{what} is a {type(item).__name__}, not a tensor",
            found=f"{item!r:.80}" if isinstance(item, (int, float, str)) else type(item).__name__,
            allowed="a tensor allocated with buffer=nl.shared_hbm, or a tuple of them",
            remedy="store the result into an output tensor and return that",
            span=program.span,
        )
    access = item.access
    buffer = access.buffer
    if buffer.memory is not MemoryRegion.shared_hbm:
        raise errors.ReturnError(
            f"{what} is not in shared HBM: {access.describe()}",
            operand=buffer.label or buffer.name,
            found=buffer.memory.value,
            allowed="shared_hbm",
            remedy="out = nl.ndarray(shape, dtype, buffer=nl.shared_hbm); nisa.dma_copy(dst=out, src=...); return out",
            span=program.span,
        )
    if (
        access.size != buffer.nbytes // buffer.dtype.itemsize
        or not access.dense()
        or access.dtype != buffer.dtype
    ):
        raise errors.ReturnError(
            f"{what} is a view of part of {buffer.describe()}",
            operand=buffer.label or buffer.name,
            found=f"shape {list(access.shape)}, strides {list(access.strides)}, offset {access.offset}",
            allowed="whole tensors",
            remedy="return the tensor itself, or copy the part into an output of its own",
            span=program.span,
        )
    if access.shape != buffer.shape:
        if buffer.role == "argument":
            return buffer
        if buffer in program.results:
            raise errors.ReturnError(
                f"{what} is {buffer.describe()}, which is also returned under another shape",
                operand=buffer.label or buffer.name,
                found=f"shapes {list(buffer.shape)} and {list(access.shape)}",
                allowed="each output tensor in one shape",
                remedy="return it once and reshape the array that the kernel gives back",
                span=program.span,
            )
        buffer.shape = access.shape
    return buffer


def _definition_span(kernel: Callable[..., Any]) -> Span:
    """The place of the kernel's `def`, where its arguments are named."""
    source = function_source(kernel)
    if source is None:
        return UNKNOWN
    node = source.node
    return Span((Frame(shown_file(source.file), node.lineno, source.name, node.col_offset),))


def _return_span(kernel: Callable[..., Any]) -> Span:
    """The place of the kernel's last `return` (or its `def`)."""
    source = function_source(kernel)
    if source is None:
        return UNKNOWN
    line, column, end = source.node.lineno, source.node.col_offset, None
    for node in _own_nodes(source.node):
        if isinstance(node, ast.Return) and node.lineno >= line:
            line, column = node.lineno, node.col_offset
            end = node.end_col_offset if node.end_lineno == node.lineno else None
    return Span((Frame(shown_file(source.file), line, source.name, column, end),))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions and classes defined inside it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _own_nodes(node)
