"""What a class must say to be an instruction."""

from __future__ import annotations

import pytest

from nki.enums import engine as Engine
from nki.ir import REGISTRY, Instruction
from tests.ir.toys import Toy


def test_incomplete_classes_are_refused() -> None:
    before = dict(REGISTRY)
    with pytest.raises(TypeError, match="has no `semantics`"):
        type("toy_empty", (Instruction,), {"engines": (Engine.vector,), "__doc__": "Nothing."})
    with pytest.raises(TypeError, match="has no docstring"):
        type("toy_silent", (Toy,), {"engines": (Engine.vector,), "__doc__": ""})
    with pytest.raises(TypeError, match="names no engine"):
        type("toy_idle", (Toy,), {"__doc__": "Nothing."})
    assert before == REGISTRY
