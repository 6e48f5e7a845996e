"""The class of what `nki.jit` makes."""

from __future__ import annotations

from nki.jit import Kernel

__all__ = ["Kernel"]
