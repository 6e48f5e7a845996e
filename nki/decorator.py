"""`nki.jit`, the decorator, with the keywords that code for older releases passes to it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

from nki import errors
from nki.jit import Kernel
from nki.span import capture

_IGNORED: Final = (
    "mode",
    "additional_compile_opt",
    "debug_kernel",
    "experimental_flags",
    "kernel_return",
    "show_compiler_tb",
)
"""Keywords that say how to compile; there is nothing left for them to say."""

_REMOVED: Final = {
    "platform_target": "set NEURON_PLATFORM_TARGET_OVERRIDE, or pass target= to nki.simulate / nki.profile",
    "grid": "put the number of cores into brackets: kernel[2](...)",
}


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel of a function: `@nki.jit` or `@nki.jit()`.

    The keywords of older releases are accepted or refused as the release notes say: `mode=` is deprecated and ignored,
    as the framework is told from the arguments; `platform_target=` is an error.
    """
    for name, value in kwargs.items():
        if name in _REMOVED:
            raise errors.RemovedApiError(
                f"nki.jit no longer takes {name}=",
                found=f"{name}={value!r}",
                allowed="nki.jit(fn)",
                remedy=_REMOVED[name],
                span=capture(),
            )
        if name not in _IGNORED:
            raise errors.UnknownKeywordError(
                f"nki.jit() got an unexpected keyword argument '{name}'",
                operand=name,
                found=f"{name}=...",
                allowed="@nki.jit without keywords",
                remedy=f"remove `{name}=`; nki.simulate and nki.profile take target=, eager= and sanitize=",
                span=capture(),
            )
    if "mode" in kwargs:
        warnings.warn("nki.jit ignores mode=; remove it", DeprecationWarning, stacklevel=2)
    if fn is None:
        return jit
    return fn if isinstance(fn, Kernel) else Kernel(fn)
