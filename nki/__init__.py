"""NKI: the tile-kernel language of the NeuronCore, parsed, checked, run and timed on the CPU.

`jit` makes a kernel of a function; `simulate` runs it; `profile` says how long it would take on trn1, trn2 or trn3 and
why; `kernel.ir(...)` is the program that is run and timed, `kernel.check(...)` what is wrong with it, and `load_ir`
reads a program back. The language is in `nki.language` (`nl`) and `nki.isa` (`nisa`).
"""

from __future__ import annotations

from nki import errors, isa, language, typing
from nki.jit import Kernel, jit, simulate
from nki.loaded import load_ir
from nki.profiling import profile

__version__ = "0.1.0"

__all__ = [
    "Kernel",
    "__version__",
    "errors",
    "isa",
    "jit",
    "language",
    "load_ir",
    "profile",
    "simulate",
    "typing",
]
