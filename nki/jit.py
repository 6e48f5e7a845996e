"""What `nki.jit` makes: a kernel that can be called, checked, printed, profiled and put inside other kernels."""

from __future__ import annotations

import inspect
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki import collector, errors
from nki.arguments import Arguments, call_error, collect
from nki.compiled import Compiled, checked_out, deliver, precise, require_precise
from nki.errors import Diagnostic
from nki.frontend.stage import NeedsEager, stage
from nki.ir.builder import Builder, current
from nki.ir.program import Program
from nki.ir.schedule import Edges, as_edges
from nki.loaded import LoadedKernel
from nki.passes import prepare
from nki.span import capture
from nki.target import Target, configured, get_target

_CACHE_SIZE = 256


@dataclass(frozen=True)
class Options:
    """How a kernel is staged and run.

    target: hardware generation; `None` asks the environment. grid: cores of the launch, `None` without brackets.
    eager: execute every instruction as it is staged. sanitize: `True` raises on warnings that are likely faults,
    `False` turns uninitialised reads into warnings and poisons the memory, `None` is the default in between.
    """

    target: str | Target | None = None
    grid: int | None = None
    eager: bool | None = None
    sanitize: bool | None = None

    def on(self, grid: int) -> Options:
        """The same on several cores."""
        return replace(self, grid=grid)

    def resolved_eager(self) -> bool:
        """Whether to run eagerly: as asked, else as NKI_EAGER says."""
        return self.eager if self.eager is not None else os.environ.get("NKI_EAGER", "") not in ("", "0")

    def resolved_target(self) -> Target:
        """The generation, as asked or as the environment says."""
        try:
            return configured(get_target(self.target))
        except errors.NkiError as error:
            raise error.at(capture(2)) from None


class Kernel:
    """A kernel function. Calling it runs it on the interpreter; inside another kernel it is inlined."""

    def __init__(self, function: Callable[..., Any], schedule: Edges = ()) -> None:
        self.func = function
        self.schedule = tuple(schedule)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        self.signature = inspect.signature(function)
        self._cache: OrderedDict[Any, tuple[Compiled, list[object]]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            return self._inline(args, kwargs)
        return self.run(Options(), args, kwargs)

    def __getitem__(self, grid: Any) -> Launch:
        return Launch(self, checked_grid(grid))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else Kernel(self.func.__get__(instance, owner), self.schedule)

    def with_schedule(self, edges: Iterable[tuple[str, str | Sequence[str]]]) -> Kernel:
        """The kernel with explicit orders: (consumer, producers) by names of instructions. They change time only."""
        return Kernel(self.func, (*self.schedule, *as_edges(edges)))

    def _builder(self, options: Options, target: Target) -> Builder:
        builder = Builder(self.__name__, target, grid=options.grid)
        builder.schedule = self.schedule
        return builder

    def ir(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> Program:
        """The program after all passes, for these arguments; `str()` of it is its text."""
        return self.compiled(Options(target=target, eager=False), args, kwargs).program

    def check(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> list[Diagnostic]:
        """Everything that can be said about the kernel without running it, worst first."""
        return self.diagnose(Options(target=target, eager=False), args, kwargs)

    def _inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        enter = current().call  # type: ignore[union-attr]
        return (enter(self.func) if enter is not None else self.func)(*args, **kwargs)

    # what `nki.simulate`, `nki.profile` and the command line use ---------------------------------------------

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Match a call with the kernel's parameters."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise call_error(self.__name__, self.signature, str(error), args, kwargs) from None
        bound.apply_defaults()
        try:
            return collect(dict(bound.arguments))
        except errors.NkiError as error:
            raise error.at(capture(2)) from None

    def compiled(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compiled:
        """The program for these arguments, from the cache if nothing it depends on has changed."""
        return self._compiled(options, self.bind(args, kwargs), breakpoints="skip")

    def run(
        self,
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Sequence[np.ndarray] = (),
    ) -> Any:
        """Run the kernel on the caller's tensors. `out`: contiguous arrays for the results, instead of new ones."""
        arguments = self.bind(args, kwargs)
        if (
            options.resolved_eager() and (options.grid or 1) == 1
        ):  # several cores need the whole program first
            return self._run_eager(options, arguments, out)
        try:
            compiled = self._compiled(options, arguments)
        except NeedsEager:
            return self._run_eager(options, arguments, out)
        if options.sanitize:
            raise_likely_faults(compiled.program)
        return compiled.run(arguments.leaves, out)

    def _compiled(self, options: Options, arguments: Arguments, breakpoints: str = "refuse") -> Compiled:
        target = options.resolved_target()
        _check_cores(options.grid, target)
        key = None
        if arguments.key is not None:
            key = (arguments.key, target, options.grid, options.sanitize, precise())
            found, _ = self._cache.get(key, (None, None))
            if found is not None and found.dependencies is not None and found.dependencies.unchanged():
                with self._lock:
                    self._cache[key] = self._cache.pop(key, (found, arguments.kept))
                return found
        builder = self._builder(options, target)
        with collector.paused():
            program, dependencies = stage(self.func, arguments, builder, breakpoints=breakpoints)
            compiled = Compiled(program, dependencies, strict=options.sanitize is not False)
        if key is not None and dependencies.cacheable:
            with self._lock:
                self._cache[key] = (compiled, arguments.kept)
                if len(self._cache) > _CACHE_SIZE:
                    self._cache.popitem(last=False)
        return compiled

    def _run_eager(self, options: Options, arguments: Arguments, out: Sequence[np.ndarray]) -> Any:
        """Execute instruction by instruction while staging; the checks of the whole program come at the end."""
        from interpreter.eager import EagerMachine

        require_precise(self.__name__)
        target = options.resolved_target()
        builder = self._builder(options, target)
        arrays: dict[str, np.ndarray] = {}
        machine = EagerMachine(target, arrays)
        builder.on_append = machine.execute
        builder.read_values = machine.values
        builder.registers = machine.registers.__getitem__
        copies = iter([leaf.array.copy() for leaf in arguments.leaves])

        def allocate(buffer: Any) -> None:
            if buffer.role == "argument":
                arrays[buffer.name] = next(copies)
            machine.allocate(buffer)

        builder.on_buffer = allocate
        program, _ = stage(self.func, arguments, builder, breakpoints="stop")
        prepare(program, strict=options.sanitize is not False)
        if options.sanitize:
            raise_likely_faults(program)
        for buffer in program.results:
            if buffer.name not in arrays:
                base = machine.blocks[buffer].base
                arrays[buffer.name] = base.view(buffer.dtype.numpy).reshape(buffer.shape)
        for name, array in checked_out(program, out).items():
            np.copyto(array, arrays[name])
            arrays[name] = array
        return deliver(program, arguments.leaves, arrays, program.mutated)

    def diagnose(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Diagnostic]:
        """Stage and check; an error becomes the first diagnostic."""
        arguments = self.bind(args, kwargs)
        target = options.resolved_target()
        builder = self._builder(options, target)
        found: list[Diagnostic] = []
        try:
            _check_cores(options.grid, target)
            program, _ = stage(self.func, arguments, builder, breakpoints="skip")
            prepare(program)
        except errors.NkiError as error:
            found.append(error.diagnostic())
        order = {"error": 0, "warning": 1, "note": 2}
        return sorted(found + builder.program.diagnostics, key=lambda d: order[d.severity])

    def __reduce__(self) -> str:
        """A kernel is copied and pickled as functions are: by name, without its programs."""
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<nki kernel {self.__qualname__}>"


class Launch:
    """`kernel[n]`: the kernel on n cores."""

    def __init__(self, kernel: Kernel, grid: int) -> None:
        self.kernel = kernel
        self.grid = grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            return self.kernel(*args, **kwargs)
        return self.kernel.run(Options(grid=self.grid), args, kwargs)

    def ir(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> Program:
        """The program after all passes."""
        return self.kernel.compiled(Options(target=target, grid=self.grid, eager=False), args, kwargs).program

    def check(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> list[Diagnostic]:
        """Diagnostics without a run."""
        return self.kernel.diagnose(Options(target=target, grid=self.grid, eager=False), args, kwargs)


def checked_grid(grid: Any) -> int:
    """The number of cores in a launch bracket."""
    if isinstance(grid, tuple) and len(grid) == 1:
        grid = grid[0]
    if not isinstance(grid, int) or isinstance(grid, bool) or grid < 1:
        raise errors.ArgumentError(
            f"kernel[{grid!r}]: the launch bracket takes the number of cores",
            found=repr(grid),
            allowed="kernel[1](...), or kernel[2](...) on trn2 and later",
            remedy="launch with kernel[1](...) or kernel(...)",
            span=capture(2),
        )
    return grid


def _check_cores(grid: int | None, target: Target) -> None:
    if grid is not None and grid > target.default_lnc:
        raise errors.TargetError(
            f"a kernel cannot be launched on {grid} cores of {target.name}",
            found=f"kernel[{grid}]",
            allowed=f"at most kernel[{target.default_lnc}] on {target.name}",
            remedy="launch with kernel[1](...)"
            + ("" if target.default_lnc > 1 else ", or run with target='trn2'"),
            span=capture(3),
        )


def raise_likely_faults(program: Program) -> None:
    """With `sanitize=True`: raise the first warning that says something very likely wrong."""
    for found in program.diagnostics:
        if found.severity == "warning":
            errors.raise_diagnostic(found)


def split(kernel: Any) -> tuple[Kernel | LoadedKernel, int | None]:
    """The kernel and the grid of what users pass where a kernel is expected; plain functions are wrapped."""
    if isinstance(kernel, Launch):
        return kernel.kernel, kernel.grid
    if isinstance(kernel, (Kernel, LoadedKernel)):
        return kernel, None
    if callable(kernel):
        return Kernel(kernel), None
    raise errors.ArgumentError(
        f"expected a kernel, got {type(kernel).__name__}",
        found=repr(kernel)[:80],
        allowed="a function decorated with @nki.jit, or a plain function",
        remedy="decorate the function with @nki.jit",
        span=capture(3),
    )
