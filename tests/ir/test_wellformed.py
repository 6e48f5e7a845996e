"""Faults of a whole program, each with its class and a part of its text; and which windows fit their storage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nki import errors
from nki.dtypes import float32, int8, int16
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.ir import Access, Buffer, Program, check_program, parse_program
from nki.ir.bounds import fits
from nki.span import UNKNOWN, Frame, Span

SBUF, PSUM = MemoryRegion.sbuf, MemoryRegion.psum
PRIVATE, SHARED = MemoryRegion.private_hbm, MemoryRegion.shared_hbm

TEXT = """\
nkir 1
kernel k(%x) -> %y on trn2 #1
buffers
  %x: [4, 8] float32 in private_hbm argument #2
  %y: [4, 8] float32 in shared_hbm #3
  %t: [4, 8] float32 in sbuf at (0, 64) #4
  %p: [4, 8] float32 in psum
  %c: [1] float32 in private_hbm constant data
    'AACAPw=='
core 0
  toy_move dst=%t, src=%x #5
  @1 toy_scale dst=%p, src=%t #6
  toy_move dst=%y, src=%t after=[@1] #7
sources
  #1 = 'k.py':1 in k
  #2 = 'k.py':2 in k
  #3 = 'k.py':3 in k
  #4 = 'k.py':4 in k
  #5 = 'k.py':5 in k
  #6 = 'k.py':6 in k
  #7 = 'k.py':7 in k
"""


@pytest.fixture
def program() -> Program:
    """A well-formed program."""
    found = parse_program(TEXT)
    check_program(found)
    return found


def stranger(program: Program) -> Access:
    """A window on a buffer that the program does not declare, though it has one of that name."""
    return Access.whole(Buffer("t", (4, 8), float32, SBUF))


def place(program: Program, operand: str, access: Access) -> None:
    """Exchange an operand of the second instruction."""
    cls, old = type(program.cores[0][1]), program.cores[0][1]
    values = {name: old.__dict__[name] for name in cls.parameters}
    program.cores[0][1] = cls({**values, operand: access}, old.span)
    program.cores[0][1].engine = old.engine
    program.cores[0][2].after = ()


def rename(program: Program) -> None:
    program.buffers[3].name = "t"


def long_window(program: Program) -> None:
    place(program, "src", Access(program.buffers[2], float32, 4, (4, 8), (8, 1)))


def undeclared(program: Program) -> None:
    place(program, "src", stranger(program))


def forward(program: Program) -> None:
    program.cores[0][0].after = (program.cores[0][1],)


def other_core(program: Program) -> None:
    program.cores.append([program.cores[0].pop()])


def no_engine(program: Program) -> None:
    program.cores[0][1].engine = Engine.unknown


def wrong_engine(program: Program) -> None:
    program.cores[0][1].engine = Engine.tensor


def bad_role(program: Program) -> None:
    program.buffers[2].role = "temporary"


def argument_unlisted(program: Program) -> None:
    program.arguments.clear()


def result_on_chip(program: Program) -> None:
    program.results[0] = program.buffers[2]


def result_undeclared(program: Program) -> None:
    program.results[0] = Buffer("y", (4, 8), float32, SHARED)


def two_results(program: Program) -> None:
    program.results *= 2


def unknown_form(program: Program) -> None:
    program.result_form = "dict"


def no_data(program: Program) -> None:
    program.buffers[4].data = None


def data_of_a_tile(program: Program) -> None:
    program.buffers[2].data = np.zeros((4, 8), np.float32)


def wrong_data(program: Program) -> None:
    program.buffers[4].data = np.zeros(2, np.float32)


def no_dimension(program: Program) -> None:
    program.buffers.append(Buffer("s", (), float32, PRIVATE))


def low_address(program: Program) -> None:
    program.buffers[2].address = (-1, 0)


def high_address(program: Program) -> None:
    program.buffers[2].address = (0, program.target.sbuf_partition_bytes - 16)


def wide_tile(program: Program) -> None:
    program.buffers.append(Buffer("w", (1, program.target.psum_partition_bytes), int16, PSUM))


def tall_tile(program: Program) -> None:
    program.buffers.append(Buffer("w", (program.target.pmax + 1, 1), int16, PSUM))


def huge_tensor(program: Program) -> None:
    program.buffers.append(Buffer("w", (2**60,), int8, PRIVATE))


FAULTS: list[tuple[Callable[[Program], None], type[errors.NkiError], str, int]] = [
    (rename, errors.KernelError, "two buffers are called %t", 0),
    (long_window, errors.BoundsError, "toy_scale: `src` is a window that leaves %t", 6),
    (undeclared, errors.KernelError, "toy_scale: `src` uses %t, which is not declared", 6),
    (forward, errors.KernelError, "toy_move waits for toy_scale, which does not come before it", 5),
    (other_core, errors.KernelError, "toy_move waits for toy_scale", 7),
    (no_engine, errors.EngineError, "toy_scale: the program has no engine", 6),
    (wrong_engine, errors.EngineError, "toy_scale: the program has no engine", 6),
    (bad_role, errors.KernelError, "%t has the unknown role 'temporary'", 4),
    (argument_unlisted, errors.KernelError, "the arguments are not the buffers", 1),
    (result_on_chip, errors.ReturnError, "%t cannot be a result", 1),
    (result_undeclared, errors.ReturnError, "%y cannot be a result", 1),
    (two_results, errors.ReturnError, "2 results in the form 'one'", 1),
    (unknown_form, errors.ReturnError, "1 results in the form 'dict'", 1),
    (no_data, errors.KernelError, "%c has no data", 0),
    (data_of_a_tile, errors.KernelError, "%t has data but is no constant", 4),
    (wrong_data, errors.ShapeError, "the data of %c do not fit", 0),
    (no_dimension, errors.ShapeError, "%s has the shape []", 0),
    (low_address, errors.PartitionLimitError, "%t takes partitions -1 to 2", 4),
    (high_address, errors.CapacityError, "%t leaves its partitions in sbuf", 4),
    (wide_tile, errors.CapacityError, "%w leaves its partitions in psum", 0),
    (tall_tile, errors.PartitionLimitError, "%w takes partitions 0 to 128", 0),
    (huge_tensor, errors.CapacityError, "%w is larger than the device memory", 0),
]


@pytest.mark.parametrize(("fault", "error", "text", "line"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_fault(
    program: Program, fault: Callable[[Program], None], error: type[errors.NkiError], text: str, line: int
) -> None:
    fault(program)
    with pytest.raises(error) as raised:
        check_program(program)
    assert type(raised.value) is error
    assert raised.value.message.startswith(text)
    assert raised.value.allowed is not None
    assert raised.value.remedy
    assert raised.value.span == (Span((Frame("k.py", line, "k"),)) if line else UNKNOWN)


TILE = Buffer("t", (4, 3, 10), float32, SBUF)
HBM = Buffer("h", (4, 30), float32, PRIVATE)
BYTES = Buffer("b", (4, 6), int8, SBUF)


@pytest.mark.parametrize(
    ("access", "inside"),
    [
        (Access.whole(TILE), True),
        (Access.whole(HBM), True),
        (Access(TILE, float32, 0, (4, 30), (30, 1)), True),
        (Access(TILE, float32, 1, (4, 30), (30, 1)), False),  # runs into the next partition
        (Access(HBM, float32, 1, (3, 30), (30, 1)), True),  # which is fine in HBM
        (Access(HBM, float32, 1, (4, 30), (30, 1)), False),
        (Access(HBM, float32, -1, (1, 1), (1, 1)), False),
        (Access(HBM, float32, 119, (4, 30), (-30, -1)), True),
        (Access(HBM, float32, 118, (4, 30), (-30, -1)), False),
        (Access(TILE, float32, 90, (4, 30), (-30, 1)), True),  # partitions backwards
        (Access(TILE, float32, 60, (4, 30), (-30, 1)), False),
        (Access(TILE, float32, 29, (4, 30), (30, -1)), True),
        (Access(TILE, float32, 28, (4, 30), (30, -1)), False),
        (Access(TILE, float32, 0, (4, 100), (30, 0)), True),
        (Access(TILE, float32, 0, (100, 1), (0, 1)), True),
        (Access(TILE, float32, 0, (2, 10), (10, 1)), False),  # dimension 0 must be partitions
        (Access(TILE, float32, 10, (1, 10), (10, 1)), True),
        (Access(TILE, float32, 120, (1, 1), (30, 1)), False),
        (Access(TILE, float32, 0, (5, 1), (30, 1)), False),
        (Access(TILE, float32, 0, (), ()), False),
        (Access(TILE, float32, 0, (4, 0), (30, 1)), False),
        (Access(TILE, float32, 0, (4, 1), (30,)), False),
        (Access(TILE, int16, 0, (4, 60), (60, 1)), True),
        (Access(TILE, int16, 0, (4, 61), (60, 1)), False),
        (Access(BYTES, float32, 0, (1, 1), (1, 1)), True),
        (Access(BYTES, float32, 1, (1, 1), (1, 1)), False),  # bytes 4 to 7 of 6
        (Access(BYTES, float32, 0, (2, 1), (1, 1)), False),
        (Access(BYTES, float32, 0, (2, 1), (3, 1)), True),  # every other partition
    ],
)
def test_fits(access: Access, inside: bool) -> None:
    assert fits(access) is inside
