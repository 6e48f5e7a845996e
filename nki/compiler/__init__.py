"""Names of the official compiler, so that files which import them load. There is no compiler here: using them raises
the error that says what to do instead.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nki.replaced import replaced

_MODULES = ("_internal", "frontend", "kernel_builder", "ncc_driver")

_ALLOCATION = (
    "leave it out: tiles are placed by the allocator, or by nl.ndarray(..., address=(partition, byte))"
)
_REPLACED = {
    "allocation_scope": _ALLOCATION,
    "enable_stack_allocator": _ALLOCATION,
    "force_auto_alloc": _ALLOCATION,
    "multi_buffer": "allocate a list of tiles and use them in turn",
    "no_reorder": "write nl.no_reorder()",
    "psum": _ALLOCATION,
    "sbuf": _ALLOCATION,
    "skip_middle_end_transformations": "leave the decorator out",
}


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}") if name in _MODULES else replaced(__name__, name, _REPLACED)
