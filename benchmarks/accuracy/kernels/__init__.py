"""The kernels behind the published rows, written anew."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules


def register() -> None:
    """Import all modules of this package: each registers the cases of its rows."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
