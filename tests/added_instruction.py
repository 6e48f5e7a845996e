"""What follows from an instruction's class alone: each check is one thing that users or tests do with an instruction.

Tests nothing here. `test_adding_an_instruction.py` makes a copy of the repository that has the example, and runs this
module there.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import random
import re
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.cli import main
from nki.errors import NkiError
from nki.ir import REGISTRY, parse_program, print_program
from nki.target_facts import GENERATIONS
from tests.isa.tiles import load, sbuf, store
from tests.source_tree import ROOT

NAME = "tensor_clamp"
PAGES = (f"docs/isa/{NAME}.md", "docs/isa/index.md", "docs/conformance.md", "README.md")
"""What `make docs` renews."""

TESTS = (
    f"isa/test_{NAME}.py",
    "conformance/test_registry.py",
    "ir/test_roundtrip.py",
    "test_api_surface.py",
    "test_architecture.py",
)
"""Tests of the repository that hold for the new instruction, too: those with its name, and `GENERAL`."""

GENERAL = (
    "every_class_is_swept",
    "whole_release",
    "one_instruction_one_file",
    "registry_is_the_folder",
)
SEEDS = range(2)


@nki.jit
def clamp(x: Any, low: Any, high: Any) -> Any:
    """The new instruction on a tile, with a column and a number as its bounds."""
    tile = load(x)
    result = sbuf(x.shape, x.dtype)
    nisa.tensor_clamp(dst=result, data=tile, low=load(low), high=high)
    return store(result)


def arguments() -> tuple[np.ndarray, np.ndarray, float]:
    """Something to clamp."""
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal((128, 512)).astype(np.float32)
    return x, -numbers.random((128, 1)).astype(np.float32), 0.75


def signature_is_public() -> None:
    function = getattr(nisa, NAME)
    assert NAME in nisa.__all__ and function.__doc__
    assert str(inspect.signature(function)) == "(dst, data, low, high, name=None)"


def values_are_those_of_numpy() -> None:
    x, low, high = arguments()
    expected = np.clip(x, low, np.float32(high))
    for target in GENERATIONS:
        for eager in (False, True):
            assert np.array_equal(nki.simulate(clamp, target=target, eager=eager)(x, low, high), expected)


def text_is_read_back() -> None:
    for target in GENERATIONS:
        program = clamp.ir(*arguments(), target=target)
        text = print_program(program)
        line = rf"^  {NAME} dst=%\S+, data=%\S+, low=%\S+, high=0.75 engine=vector #"
        assert re.search(line, text, re.MULTILINE)
        again = parse_program(text)
        assert again == program and print_program(again) == text


def its_engine_is_timed() -> None:
    for target in GENERATIONS:
        profile = nki.profile(clamp, target=target)(*arguments())
        vector = profile.engines["vector"]
        assert vector.instructions == 1 and vector.busy_us > 0
        (line,) = (line for line in profile.lines if f"nisa.{NAME}(" in line.code)
        assert line.engines_us == {"vector": vector.busy_us}


def wrong_operands_are_named() -> None:
    x, low, high = arguments()
    lines, first = inspect.getsourcelines(clamp.func)
    line = first + next(number for number, text in enumerate(lines) if f"nisa.{NAME}(" in text)
    for wrong in (low.astype(np.int32), low[:64]):
        with pytest.raises(NkiError) as caught:
            nki.simulate(clamp)(x, wrong, high)
        error = caught.value
        assert error.message.startswith(f"{NAME}: ") and error.operand and error.operand.startswith("low: ")
        assert error.span is not None and (error.span.file, error.span.line) == (__file__, line)
        told = (f"nisa.{NAME}(dst=result", "found: ", "allowed: ", "help: ")
        assert all(part in str(error) for part in told)


def command_line_describes_it() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["isa", NAME]) == 0 and main(["isa"]) == 0
    text = printed.getvalue()
    assert text.startswith(f"{NAME}(dst, data, low, high, name=None)\n\ndst[P, F] = min(max(")
    assert re.search(rf"^{NAME} +vector +dst\[P, F\] = ", text, re.MULTILINE)


def pages_are_written() -> None:
    from tools import docs

    with contextlib.redirect_stdout(io.StringIO()):
        assert docs.main([]) == 0
    page, _, conformance, readme = ((ROOT / path).read_text(encoding="utf-8") for path in PAGES)
    assert all(f"| `{parameter}` |" in page for parameter in REGISTRY[NAME].parameters)
    assert all(f"| {target} | float32 | vector |" in page for target in GENERATIONS)
    (row,) = re.findall(rf"^\| \[`{NAME}`\].*$", conformance, re.MULTILINE)
    assert "the range is not empty" in row and f"../tests/isa/test_{NAME}.py" in row
    assert f"(docs/isa/{NAME}.md) | Vector | trn1 |" in readme


def sweep_and_strategies_need_no_entry() -> None:
    """The one in its test may be missing, too."""
    from tests.conformance import legal
    from tests.ir import strategies
    from tests.property import hints, programs

    cls = REGISTRY[NAME]
    with pytest.MonkeyPatch.context() as patch:
        for module in (legal, strategies, programs):
            assert module.declared(NAME) == {"low": 0.5, "high": 2.5}
            patch.setattr(module, "declared", lambda name: {})
        assert not any(NAME in table for table in (legal.TIED, legal.ELSEWHERE, strategies.TIED, hints.DIMS))
        call = legal.legal(cls, nl.float32)
        assert call.others == {"low": 1.0, "high": 1.0} and call.kernel().ir(call.arrays())
        makers = [strategies.Maker({NAME: cls}, (), (), (), random.Random(seed)) for seed in SEEDS]
        assert any(any(maker.make([2]).instructions()) for maker in makers)
        random_programs_have_it()


def random_programs_have_it() -> None:
    from tests.property.playing import difference, eagerly, inputs, planned
    from tests.property.programs import CLASSES, Maker

    assert REGISTRY[NAME] in CLASSES
    for seed in SEEDS:
        maker = Maker(seed, [REGISTRY[NAME]] * 6)
        program = maker.make(5).builder.program
        assert sum(type(each) is REGISTRY[NAME] for each in program.instructions()) > 1
        given = inputs(program, seed)
        assert not difference(planned(program, given), eagerly(maker.steps, maker.target, given))


class Passed:
    """A plugin of pytest: the tests that have passed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.names.append(report.nodeid)


def repository_tests_pass() -> None:
    passed = Passed()
    options = ["-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist"]
    wanted = ["-k", " or ".join((NAME, *GENERAL))]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = pytest.main([*options, *wanted, *(f"tests/{path}" for path in TESTS)], plugins=[passed])
    assert code == 0, printed.getvalue()
    for piece in (*GENERAL, f"test_each_instruction[{NAME}]", f"test_wrong_dtypes_are_refused[{NAME}]"):
        assert any(piece in name for name in passed.names), piece
    alike = f"test_legal_calls_run_alike_planned_and_eager[{NAME}-"
    assert sum(alike in name for name in passed.names) == len(GENERATIONS)


CHECKS = (
    signature_is_public,
    values_are_those_of_numpy,
    text_is_read_back,
    its_engine_is_timed,
    wrong_operands_are_named,
    command_line_describes_it,
    pages_are_written,
    sweep_and_strategies_need_no_entry,
    random_programs_have_it,
    repository_tests_pass,
)

if __name__ == "__main__":
    for check in CHECKS:
        check()
        print(check.__name__)
