"""The memory regions by the names that kernels use, and the check of a `buffer=` argument."""

from __future__ import annotations

from typing import Any

from nki import errors
from nki.enums import MemoryRegion
from nki.span import capture

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
hbm = MemoryRegion.private_hbm


def as_region(buffer: Any, what: str = "buffer") -> MemoryRegion:
    """A memory region; strings are refused (rule 144)."""
    if isinstance(buffer, MemoryRegion):
        return buffer
    names = [member.name for member in MemoryRegion]
    known = buffer if isinstance(buffer, str) and buffer in (*names, "hbm") else "sbuf"
    raise errors.ArgumentError(
        f"`{what}` must be a memory region, got {type(buffer).__name__}",
        operand=what,
        found=f"{buffer!r:.80}",
        allowed="nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm",
        remedy=f"pass {what}=nl.{known}",
        span=capture(2),
    )
