"""From a staged program to one that can run: each pass is a file, `prepare` is their order."""

from __future__ import annotations

from nki.ir.program import Program
from nki.ir.schedule import settle_order
from nki.passes.allocate import allocate
from nki.passes.initialised import check_initialised
from nki.passes.widen import widened

__all__ = ["prepare", "widened"]


def prepare(program: Program, *, strict: bool = True) -> frozenset[str]:
    """Obey explicit orders, prove the program initialised and give its tiles addresses.

    Returns the names of the buffers that must be poisoned before a run (see `check_initialised`). Raises the error of
    the first fault; with `strict=False` uninitialised reads are warnings.
    """
    settle_order(program)
    poisoned = check_initialised(program, strict=strict)
    allocate(program)
    return poisoned
