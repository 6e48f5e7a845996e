"""`neuronxcc.nki.isa`: the enumerations are those of `nki.isa`; instructions have moved there."""

from __future__ import annotations

from enum import Enum
from typing import Any

from nki import isa
from nki.replaced import Replaced


def __getattr__(name: str) -> Any:
    value = getattr(isa, name)
    if isinstance(value, (Enum, Replaced)) or (isinstance(value, type) and issubclass(value, Enum)):
        return value
    return Replaced(f"{__name__}.{name}", f"write nki.isa.{name}; it takes its destination as first argument")
