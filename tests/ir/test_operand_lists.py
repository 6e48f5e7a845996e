"""Operands that are lists of tensors: bound, verified, printed, read back, ordered and executed like any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from interpreter.execute import execute
from interpreter.plan import Plan
from nki import errors
from nki.dtypes import bfloat16, float32
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.ir import Access, parse_program, print_program
from nki.ir.arguments import bind
from nki.ir.builder import Builder
from nki.ir.cost import Phase
from nki.ir.instruction import REGISTRY, Instruction, Steps
from nki.ir.operands import HBM_OR_SBUF, INTEGER, attribute, destination, source
from nki.passes import dependencies
from nki.target import Target, get_target

_BEFORE = dict(REGISTRY)


class toy_sum(Instruction):
    """dst = sum of srcs, element by element."""

    engines = (Engine.dma,)
    limits = {}

    dst = destination("E", HBM_OR_SBUF)
    srcs = source("E", HBM_OR_SBUF, many=True)
    times = attribute(INTEGER, 1)

    def semantics(self, a: Any) -> Steps:
        yield np.copyto, (a.dst, a.srcs[0])
        for array in a.srcs[1:]:
            yield np.add, (a.dst, array, a.dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return ()


REGISTRY.clear()
REGISTRY.update(_BEFORE)


class Tensor:
    """What a kernel passes: anything with an `access`."""

    def __init__(self, access: Access) -> None:
        self.access = access


@pytest.fixture
def builder() -> Iterator[Builder]:
    REGISTRY["toy_sum"] = toy_sum
    yield Builder("sums", get_target("trn2"))
    del REGISTRY["toy_sum"]


def argument(builder: Builder, name: str, dtype: Any = float32, size: int = 4) -> Access:
    buffer = builder.buffer((1, size), dtype, MemoryRegion.shared_hbm, label=name, role="argument")
    builder.program.arguments.append(buffer)
    return Access.whole(buffer)


def add(builder: Builder, dst: Access, *srcs: Access) -> Instruction:
    instruction = toy_sum(bind(toy_sum, (Tensor(dst), [Tensor(s) for s in srcs]), {}))
    builder.append(instruction)
    return instruction


def run(builder: Builder, *arrays: np.ndarray) -> None:
    names = [buffer.name for buffer in builder.program.arguments]
    execute(Plan(builder.program), dict(zip(names, arrays)))


def test_a_list_becomes_one_declaration_per_tensor(builder: Builder) -> None:
    a, b = argument(builder, "a"), argument(builder, "b")
    instruction = add(builder, a, b, a)
    assert [operand.name for operand, _ in instruction.accesses()] == ["dst", "srcs[0]", "srcs[1]"]
    assert instruction.srcs == (b, a)  # type: ignore[attr-defined]
    assert instruction.reads() == [b, a] and instruction.writes() == [a]


def test_lists_are_printed_and_read_back(builder: Builder) -> None:
    a, b = argument(builder, "a"), argument(builder, "b")
    half = Access(b.buffer, float32, 0, (1, 4), (0, 0))
    add(builder, a, b)
    add(builder, a, half, a, b)
    text = print_program(builder.program)
    assert "  toy_sum dst=%a, srcs=[%b] engine=dma\n" in text
    assert "srcs=[%b.ap([[0, 1], [0, 4]]), %a, %b]" in text
    assert print_program(parse_program(text)) == text


@pytest.mark.parametrize(
    "given", ["%b", "[]", "3", "[3]", "[%b, 3]", "[%b, [%b]]", "None", "[%c]", "[%b.ap([[0, 1], [1, 5]])]"]
)
def test_texts_without_a_list(builder: Builder, given: str) -> None:
    a, b = argument(builder, "a"), argument(builder, "b")
    add(builder, a, b)
    text = print_program(builder.program).replace("srcs=[%b]", f"srcs={given}")
    with pytest.raises(errors.NkiError) as raised:
        parse_program(text)
    assert raised.value.allowed


@pytest.mark.parametrize("given", [None, [], 1, [None], "ab"])
def test_calls_without_a_list(builder: Builder, given: Any) -> None:
    a = argument(builder, "a")
    with pytest.raises(errors.ArgumentError, match="list of tensors") as raised:
        bind(toy_sum, (Tensor(a), given), {})
    assert raised.value.remedy == "write srcs=[first, second]"
    with pytest.raises(errors.ArgumentError, match="list of tensors"):
        bind(toy_sum, (Tensor(a), Tensor(a)), {})


def test_every_tensor_of_the_list_is_verified(builder: Builder) -> None:
    a, b, c = argument(builder, "a"), argument(builder, "b"), argument(builder, "c", size=3)
    with pytest.raises(errors.OperandShapeError, match=r"3 in `srcs\[1\]`"):
        add(builder, a, b, c)


def test_waits_for_the_writer_of_each(builder: Builder) -> None:
    a, b, c = argument(builder, "a"), argument(builder, "b"), argument(builder, "c")
    add(builder, a, c)
    add(builder, b, c)
    add(builder, c, a, b)
    found = dependencies.dependencies(builder.program)[0][2]
    assert {(d.on, d.operand) for d in found} == {(0, "srcs[0]"), (1, "srcs[1]")}


def test_values(builder: Builder) -> None:
    a, b, c = argument(builder, "a"), argument(builder, "b", bfloat16), argument(builder, "c")
    add(builder, a, b, c, a)
    rows = [
        np.array([values], float32.numpy) for values in ([1, 2, 3, 4], [10, 20, 30, 40], [100, 200, 300, 400])
    ]
    result = rows[0].copy()
    run(builder, result, rows[1].astype(bfloat16.numpy), rows[2])
    np.testing.assert_array_equal(result, sum(rows))


def test_overlapping_windows_are_read_before_they_are_written(builder: Builder) -> None:
    whole = argument(builder, "a", size=5)
    first, last = (Access(whole.buffer, float32, at, (1, 4), (5, 1)) for at in (0, 1))
    add(builder, last, first, argument(builder, "ones"), last)
    array = np.arange(5, dtype=np.float32).reshape(1, 5)
    expected = array.copy()
    expected[0, 1:] = array[0, :4] + 1 + array[0, 1:]
    run(builder, array, np.ones((1, 4), np.float32))
    np.testing.assert_array_equal(array, expected)


def test_members_are_made_once() -> None:
    declared = toy_sum.operands[1]
    assert declared.members(3)[0] is declared.members(1)[0]
    assert not declared.members(1)[0].many and declared.members(1)[0].dims == declared.dims
