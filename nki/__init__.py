"""NKI: the tile-kernel language of the NeuronCore, parsed, checked, run and timed on the CPU.

`jit` makes a kernel of a function; `simulate` runs it; `profile` says how long it would take on trn1, trn2 or trn3 and
why; `kernel.ir(...)` is the program that is run and timed, `kernel.check(...)` what is wrong with it, and `load_ir`
reads a program back. The language is in `nki.language` (`nl`) and `nki.isa` (`nisa`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nki import collectives, errors, isa, language, typing
from nki import dtype as dtype
from nki.decorator import jit
from nki.jit import Kernel
from nki.loaded import load_ir
from nki.profiling import profile
from nki.replaced import replaced
from nki.simulator import cpu_simulate, simulate

__version__ = "0.1.0"

__all__ = [
    "Kernel",
    "__version__",
    "collectives",
    "cpu_simulate",
    "dtype",
    "errors",
    "isa",
    "jit",
    "language",
    "load_ir",
    "profile",
    "simulate",
    "typing",
]

_MODULES = ("builtin", "compiler", "experimental", "framework", "meta", "runtime")
"""Loaded when first asked for."""

_REPLACED = {
    "baremetal": "run the kernel with nki.simulate(kernel)(...); nki.profile(kernel)(...) says how long it takes",
    "benchmark": "measure with nki.profile(kernel)(...): .latency_us is the time of one run",
    "simulate_kernel": "write nki.simulate(kernel)(...)",
    "trace": "call the function from a kernel as it is; functions called by a kernel need no decorator",
}
"""Functions of older releases, which the release notes of 0.2.0 declare as not supported."""


def __getattr__(name: str) -> Any:
    return import_module(f"nki.{name}") if name in _MODULES else replaced("nki", name, _REPLACED)
