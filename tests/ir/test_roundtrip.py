"""Print, parse, print: the text form loses nothing, and no text makes the reader fall over."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nki.isa  # noqa: F401 - fills the registry
from nki.errors import NkiError
from nki.ir import REGISTRY, Program, check_program, parse_program, print_program
from nki.isa.activation_functions import ACTIVATIONS
from nki.isa.alu import ALU
from tests.ir.strategies import Maker, programs
from tests.ir.toys import TOYS, toys

REAL = dict(REGISTRY)
WORDS = (*ALU, *ACTIVATIONS)


@pytest.fixture(autouse=True, scope="module")
def _everything_registered() -> Iterator[None]:
    with toys():
        REGISTRY.update(REAL)
        yield


def check_identity(program: Program) -> None:
    """The text of a program is read back into an equal one."""
    check_program(program)
    text = print_program(program)
    again = parse_program(text)
    assert print_program(again) == text
    assert again == program
    for buffer, copy in zip(program.buffers, again.buffers):
        assert (buffer.data is None) == (copy.data is None)
        if buffer.data is not None and copy.data is not None:
            assert buffer.data.tobytes() == copy.data.tobytes()
    for one, other in zip(program.instructions(), again.instructions()):
        assert one.span == other.span
        assert [access for _, access in one.accesses()] == [access for _, access in other.accesses()]
        assert one.engine is other.engine


@given(programs(TOYS))
def test_toys(program: Program) -> None:
    check_identity(program)


@given(programs(REAL, WORDS))
def test_instruction_set(program: Program) -> None:
    check_identity(program)


@pytest.mark.parametrize("name", sorted(REAL))
def test_each_instruction(name: str) -> None:
    """Reaches every instruction, which the test above may not."""
    for seed in range(20):
        program = Maker({name: REAL[name]}, WORDS, (), (), random.Random(seed)).make([2])
        check_identity(program)
        if program.cores[0]:
            return
    pytest.fail(f"no legal {name} was made: give tests/ir/strategies.py the values that it needs")


MARKS = "()[]{}<>%#@'\":,.=-+0123456789 \n\\_aé"


def mutated(text: str, chance: random.Random) -> str:
    """The text with a few characters, words or lines changed, doubled, swapped or gone."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(text) + 1)
        stop = min(len(text), start + chance.choice([0, 1, 1, 2, 5, 40]))
        piece = chance.choice(
            ["", chance.choice(MARKS), text[start:stop] * 2, "inf", "None", "[" * 30, str(2**70)]
        )
        text = text[:start] + piece + text[stop:]
    return text


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(programs(TOYS), st.integers(0, 2**32))
def test_mutated_texts_only_raise_our_errors(program: Program, seed: int) -> None:
    text = print_program(program)
    chance = random.Random(seed)
    for _ in range(20):
        changed = mutated(text, chance)
        try:
            again = parse_program(changed)
        except NkiError as error:
            assert str(error)
        else:
            check_identity(again)
