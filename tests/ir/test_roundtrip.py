"""Print, parse, print: the text form loses nothing, and no text makes the reader fall over."""

from __future__ import annotations

import contextlib
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nki.isa  # noqa: F401 - fills the registry
from nki.errors import NkiError
from nki.ir import REGISTRY, Instruction, Program, check_program, parse_program, print_program
from nki.ir.order import line_up
from nki.isa.activation_functions import ACTIVATIONS
from nki.isa.alu import ALU
from tests.conftest import ROOT
from tests.ir.strategies import Maker, programs
from tests.ir.toys import TOYS

REAL = dict(REGISTRY)
WORDS = (*ALU, *ACTIVATIONS)


@pytest.fixture(autouse=True, scope="module")
def _instruction_set(registry: dict[str, type[Instruction]]) -> None:
    REGISTRY.update(REAL)


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
        assert (buffer.loop is None) == (copy.loop is None)
    check_nodes(program, again)
    for one, other in zip(program.instructions(), again.instructions()):
        assert one.span == other.span
        assert [access for _, access in one.accesses()] == [access for _, access in other.accesses()]
        assert one.engine is other.engine


def check_nodes(program: Program, again: Program) -> None:
    """Both have the same loops at the same places, and the same registers."""
    assert program.registers == again.registers
    assert [r.frozen for r in program.registers] == [r.frozen for r in again.registers]
    for core, copies in zip(program.cores, again.cores):
        loops, others = line_up(core), line_up(copies)
        match = {id(a): b for x, y in zip(loops.around, others.around) for a, b in zip(x, y)}
        assert [len(around) for around in loops.around] == [len(around) for around in others.around]
        for node in (loop for around in loops.around for loop in around):
            other = match[id(node)]
            assert (node.kind, node.counter, node.start, node.stop) == (
                other.kind,
                other.counter,
                other.start,
                other.stop,
            )
            assert (node.step, node.condition, node.span) == (other.step, other.condition, other.span)
        for buffer, copy in zip(program.buffers, again.buffers):
            if id(buffer.loop) in match:
                assert copy.loop is match[id(buffer.loop)]


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
        program = Maker({name: REAL[name]}, WORDS, (), (), random.Random(seed)).make([2, 1][: 1 + seed % 2])
        check_identity(program)
        if any(program.instructions()):
            return
    pytest.fail(
        f"no legal {name} was made: say what its rules want: LEGAL in its test, see tests/isa/ties.py"
    )


MARKS = "()[]{}<>%#@$'\":,.=-+0123456789 \n\\_aé"
WORD = re.compile(r"[%@#$]?[\w.]+|[^\w\s]")


def _sort(word: str) -> str:
    """What begins alike is exchanged more often: such texts reach further than the grammar."""
    return "0" if word[:1].isdigit() else "a" if word[:1].isalpha() else word[:1]


def mutated(text: str, chance: random.Random) -> str:
    """The text with a few words exchanged, or some characters changed, doubled or gone."""
    for _ in range(chance.randint(1, 3)):
        if chance.random() < 0.7:
            words = list(WORD.finditer(text))
            start, stop = chance.choice(words).span() if words else (0, 0)
            alike = [word[0] for word in words if _sort(word[0]) == _sort(text[start : start + 1])]
            others = [*(word[0] for word in words), "-1", "0", "65536", "inf", "None", "[[1, 2]]"]
            piece = chance.choice(alike if alike and chance.random() < 0.7 else others)
        else:
            start = chance.randrange(len(text) + 1)
            stop = min(len(text), start + chance.choice([0, 1, 1, 2, 5, 40]))
            piece = chance.choice(["", chance.choice(MARKS), text[start:stop] * 2, "[" * 30, str(2**70)])
        text = text[:start] + piece + text[stop:]
    return text


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(programs(TOYS), st.integers(0, 2**32))
def test_mutated_texts_only_raise_our_errors(program: Program, seed: int) -> None:
    text = print_program(program)
    chance = random.Random(seed)
    for _ in range(20):
        changed = mutated(text, chance)
        with contextlib.suppress(NkiError):
            check_identity(parse_program(changed))


def test_the_example_with_a_loop() -> None:
    """The one of docs/ir.md, whose first lines are left out there."""
    page = (ROOT / "docs/ir.md").read_text(encoding="utf-8")
    (body,) = (block for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) if "for $i" in block)
    text = f"nkir 1\nkernel k(%x) on trn2\n{body}"
    assert print_program(parse_program(text)) == text
