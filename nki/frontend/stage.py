"""Staging: the rewritten kernel runs under CPython with symbolic tiles, and a program is what it leaves behind."""

from __future__ import annotations

import ast
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from nki import errors
from nki.enums import MemoryRegion
from nki.errors import Diagnostic
from nki.frontend.callsite import call_site_name
from nki.frontend.device_loops import DeviceLoops
from nki.frontend.launch import note_launch
from nki.frontend.loop_values import current_pass, loop_values
from nki.frontend.recorded import Dependencies
from nki.frontend.results import set_results
from nki.frontend.rewrite import rewrite_kernel
from nki.frontend.source import function_source
from nki.frontend.subset import check_subset
from nki.ir.builder import Builder
from nki.ir.program import Access, Buffer, Program, Shape
from nki.ir.schedule import add_edges
from nki.language.removed import unexpected_keyword
from nki.span import UNKNOWN, Frame, Span, from_traceback, is_user_code, shown_file, stop_at
from nki.tensor import NkiTensor

if TYPE_CHECKING:
    from nki.arguments import Arguments, Leaf


class NeedsEager(Exception):
    """The kernel calls `breakpoint()`: it must be run eagerly, so that the debugger sees values."""


class StagingHooks(DeviceLoops):
    """Follows calls into user functions, checks each against the subset, and looks out for `breakpoint()`."""

    def __init__(self, builder: Builder, dependencies: Dependencies, breakpoints: str) -> None:
        super().__init__(builder, dependencies)
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
                grid = self.builder.grid or 1
                raise NeedsEager if grid == 1 else _no_breakpoints(grid, function)
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
    builder.current_pass = current_pass
    builder.call = hooks.call
    builder.read_file = lambda path: dependencies.refuse(f"a kernel that reads {path}")
    program = builder.program
    program.span = _return_span(kernel)
    with builder:
        place = _definition_span(kernel)
        note_launch(builder, arguments, place)
        tensors = [_argument(builder, leaf, place) for leaf in arguments.leaves]
        program.arguments = [tensor.access.buffer for tensor in tensors]
        try:
            hooks.enter_source(kernel, kernel=True)
            _stage_cores(kernel, arguments, tensors, hooks)
            add_edges(program, builder.schedule)
        except NeedsEager:
            raise
        except errors.NkiError as error:
            if error.span is None or error.span is UNKNOWN:
                error.span = from_traceback(error)
            _note_loops(error, error)
            raise
        except Exception as error:
            raise _note_loops(_user_error(error), error) from error
    return program, dependencies


def _stage_cores(
    kernel: Callable[..., Any], arguments: Arguments, tensors: list[NkiTensor], hooks: StagingHooks
) -> None:
    """Run the kernel once for each core."""
    builder = hooks.builder
    returned: list[tuple[Buffer, Shape]] = []
    for core in range(builder.grid or 1):
        builder.begin_core(core)
        values = OrderedDict(arguments.filled(tensors))
        call = inspect.BoundArguments(inspect.signature(kernel), values)
        result = _run(rewrite_kernel(kernel, hooks), call)
        returned = set_results(builder.program, result, core, returned)
        if builder.fault is not None:
            raise builder.fault
    for buffer, shape in returned:  # not earlier: the next core makes it in its own shape
        buffer.shape = shape


def _run(kernel: Callable[..., Any], call: inspect.BoundArguments) -> Any:
    """The border of user code: no user frame is looked for below this one."""
    return kernel(*call.args, **call.kwargs)


stop_at(_run.__code__)


def _no_breakpoints(grid: int, function: Callable[..., Any]) -> errors.NkiError:
    return errors.KernelError(
        "breakpoint() stops a kernel on one core only: on several, values exist when all have been staged",
        found=f"kernel[{grid}]",
        allowed="kernel(...) or kernel[1](...)",
        remedy="show values with nl.device_print, or debug the kernel on one core",
        span=_definition_span(function),
    )


def _ignore(*args: Any, **kwargs: Any) -> None:
    """What `breakpoint()` does where there is nothing to look at."""


def _uses_breakpoint(code: CodeType) -> bool:
    """Whether `breakpoint` is named in a function or in one defined inside it."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return "breakpoint" in code.co_names or any(map(_uses_breakpoint, inner))


def _argument(builder: Builder, leaf: Leaf, span: Span) -> NkiTensor:
    """The tensor of an argument: in HBM, shared only if there is a second core to share it with (rule 141)."""
    shape = tuple(leaf.array.shape)
    memory = MemoryRegion.private_hbm if (builder.grid or 1) == 1 else MemoryRegion.shared_hbm
    buffer = builder.buffer(shape, leaf.dtype, memory, label=leaf.name, role="argument", span=span)
    return NkiTensor._of(Access.whole(buffer))


def _name_of_tile() -> str | None:
    """The variable that receives the tile being allocated, from the innermost user frame."""
    frame = sys._getframe(2)
    while frame is not None:
        if is_user_code(frame.f_code):
            return call_site_name(frame.f_code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _note_loops(told: errors.NkiError, error: Exception) -> errors.NkiError:
    """Add to an error in which passes of the loops around it it happened."""
    values = loop_values(error)
    if values:
        told.notes += (f"{'loops:':9}{', '.join(values)}",)
    return told


def _user_error(error: Exception) -> errors.NkiError:
    """An exception of the kernel's own code as an error of ours that is still of the original type."""
    span = from_traceback(error)
    text = str(error)
    if isinstance(error, AssertionError):
        return errors.UserAssertionError(text or "an assertion of the kernel failed", span=span)
    unexpected = unexpected_keyword(error)
    if unexpected is not None:
        return unexpected.at(span)
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
