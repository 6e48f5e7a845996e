"""`nki.profile`: how long a kernel takes and why. The time model and the report are the interpreter's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nki import errors
from nki.jit import Options, split
from nki.span import capture
from nki.target import Target

if TYPE_CHECKING:
    from interpreter.profile import Profile

_SCHEDULES = ("auto", "program", "compiler")
_DGE = ("auto", "static")

_REMOVED = {
    "working_directory": "the profile writes where you ask: nki.profile(kernel)(...).to_html(path)",
    "save_neff_name": "nothing is compiled; leave it out",
    "save_trace_name": "write a trace with nki.profile(kernel)(...).to_perfetto(path)",
    "additional_compile_opt": "nothing is compiled; leave it out",
    "overwrite": "leave it out; files are written over",
    "profile_nth": "the time of a program is the same in every run; leave it out",
    "num_execs": "the time of a program is the same in every run; leave it out",
}
"""Keywords of the profiling decorator of older releases, and what to do instead."""


def profile(
    kernel: Any = None,
    *,
    target: str | Target | None = None,
    schedule: str = "auto",
    dge: str = "auto",
    what_if: Mapping[str, float] | None = None,
    **removed: Any,
) -> Callable[..., Profile]:
    """A callable that takes the kernel's arguments and returns its `Profile`; values are only computed to
    tell how often loops on the device run, where their bounds are registers.

    target: "trn1", "trn2" or "trn3" (default: NEURON_PLATFORM_TARGET_OVERRIDE, else trn3).
    schedule: "program" keeps the order of the instructions as written, "compiler" reorders as a sensible compiler
    would, "auto" keeps it for kernels that fix their own order.
    dge: who makes DMA descriptors; "static" prepares all of them before the run.
    what_if: resources that are so many times as fast as on the target, e.g. {"dma_bandwidth": 2}; `Profile.bounds`
    names them and says what each would gain at most.

    Example: print(nki.profile(kernel, target="trn2")(a, b))
    """
    if removed:
        raise _keyword_error(next(iter(removed)))
    _check_choice("schedule", schedule, _SCHEDULES)
    _check_choice("dge", dge, _DGE)
    if what_if:
        _check_factors(what_if)
    plain, grid = split(kernel)
    options = Options(target=target, grid=grid, eager=False)

    def profiled(*args: Any, **kwargs: Any) -> Profile:
        from interpreter.profile import Profile

        compiled = plain.compiled(options, args, kwargs)
        leaves = plain.bind(args, kwargs).leaves if args or kwargs else []
        found = Profile(*compiled.timed(schedule, dge, leaves))
        return found.what_if(**what_if) if what_if else found

    profiled.__name__ = plain.__name__
    profiled.__doc__ = plain.__doc__
    return profiled


def _keyword_error(name: str) -> errors.NkiError:
    allowed = "nki.profile(kernel, target=..., schedule=..., dge=..., what_if=...)(arguments)"
    if name in _REMOVED:
        return errors.RemovedApiError(
            f"nki.profile no longer takes {name}=, and is not a decorator any more",
            found=f"{name}=...",
            allowed=allowed,
            remedy=_REMOVED[name],
            span=capture(3),
        )
    return errors.UnknownKeywordError(
        f"nki.profile() got an unexpected keyword argument '{name}'",
        operand=name,
        found=f"{name}=...",
        allowed=allowed,
        remedy="pass the kernel's own arguments to the second call: nki.profile(kernel)(a, b)",
        span=capture(3),
    )


def _check_factors(factors: Mapping[str, float]) -> None:
    from interpreter.timing.what_if import check_factors

    try:
        check_factors(factors)
    except errors.NkiError as error:
        raise error.at(capture(3)) from None


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value in allowed:
        return
    words = ", ".join(repr(word) for word in allowed)
    raise errors.ArgumentError(
        f"nki.profile: {name}={value!r} is not one of {words}",
        operand=name,
        found=repr(value),
        allowed=words,
        remedy=f"pass {name}={allowed[0]!r} or leave it out",
        span=capture(3),
    )
