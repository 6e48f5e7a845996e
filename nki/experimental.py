"""`nki.experimental.while_loop`, under which some documentation mentions `nl.while_loop`."""

from __future__ import annotations

from typing import Any

from nki import language


def __getattr__(name: str) -> Any:
    if name == "while_loop":
        return language.while_loop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
