"""`neuronxcc.nki`: the old namespace. A kernel of it can be defined; when it is called it says how to move to `nki`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from nki.replaced import Replaced

_MODULES = ("compiler", "isa", "language", "typing")

_MOVE = "write `import nki`, `import nki.language as nl` and `import nki.isa as nisa`, and follow the migration guide"
_DECORATORS = {
    "baremetal": "run the kernel with nki.simulate(kernel)(...); nki.profile(kernel)(...) says how long it takes",
    "benchmark": "measure with nki.profile(kernel)(...): .latency_us is the time of one run",
    "jit": _MOVE,
    "profile": "measure with nki.profile(kernel)(...)",
    "trace": "call the function from a kernel as it is; functions called by a kernel need no decorator",
}
_REPLACED = {
    "FrameworkKernel": _MOVE,
    "simulate_kernel": "write nki.simulate(kernel)(...)",
    "tensor": "the class of tensors is nki.language.NkiTensor",
}


def _decorator(name: str, remedy: str) -> Callable[..., Any]:
    """A decorator, with or without keywords, of kernels that can be defined and not called."""

    def decorate(kernel: Any = None, **_: Any) -> Any:
        if kernel is None:
            return decorate
        shown = getattr(kernel, "__qualname__", type(kernel).__name__)
        return Replaced(f"{shown}, a kernel of neuronxcc.nki.{name},", remedy)

    return decorate


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _DECORATORS:
        return _decorator(name, _DECORATORS[name])
    if name in _REPLACED:
        return Replaced(f"{__name__}.{name}", _REPLACED[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
