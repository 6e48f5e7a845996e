"""`neuronxcc.nki.language`: dtypes, memories and sizes are those of `nki.language`; functions have moved there."""

from __future__ import annotations

from typing import Any

from nki import language
from nki.language.removed import REPLACEMENTS
from nki.replaced import Replaced


def __getattr__(name: str) -> Any:
    if name in REPLACEMENTS:
        return Replaced(f"{__name__}.{name}", REPLACEMENTS[name])
    value = getattr(language, name)
    return Replaced(f"{__name__}.{name}", f"write nki.language.{name}") if callable(value) else value
