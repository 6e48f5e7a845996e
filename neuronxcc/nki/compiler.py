"""Names of the old compiler: those of `nki.compiler`, which say what to do instead when they are used. Decorators leave
the kernel as it is."""

from __future__ import annotations

from typing import Any

from nki import compiler

_DECORATORS = ("enable_stack_allocator", "force_auto_alloc", "skip_middle_end_transformations")


def _unchanged(kernel: Any = None, **_: Any) -> Any:
    return _unchanged if kernel is None else kernel


def __getattr__(name: str) -> Any:
    return _unchanged if name in _DECORATORS else getattr(compiler, name)
