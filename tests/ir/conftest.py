"""The tests of the IR run with the toy instructions in the registry, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nki.ir.instruction import Instruction
from tests.ir.toys import toys


@pytest.fixture(autouse=True, scope="module")
def registry() -> Iterator[dict[str, type[Instruction]]]:
    """The toys, while a module's tests run."""
    with toys() as names:
        yield names
