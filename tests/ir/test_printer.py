"""The text of a program: what is written, what is left out, and that windows and numbers are written exactly."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from nki.dtypes import bfloat16, float32, int8, int16
from nki.enums import MemoryRegion, dge_mode, matmul_perf_mode
from nki.enums import engine as Engine
from nki.ir import Access, Buffer, Program, print_program
from nki.ir.arguments import bind
from nki.ir.builder import Builder
from nki.ir.notation import access_text, buffer_text, name_text
from nki.span import Frame, Span
from nki.target import get_target
from tests.conftest import Golden
from tests.ir.toys import TOYS

SBUF, PSUM = MemoryRegion.sbuf, MemoryRegion.psum
PRIVATE, SHARED = MemoryRegion.private_hbm, MemoryRegion.shared_hbm


class Tensor:
    """What an instruction takes for a tensor: anything with an `access`."""

    def __init__(self, access: Access | Buffer) -> None:
        self.access = access if isinstance(access, Access) else Access.whole(access)


def stage(builder: Builder, mnemonic: str, line: int = 0, **values: Any) -> Any:
    """Append a toy as a kernel would; `line` is the user's line, 0 for none."""
    values = {k: Tensor(v) if isinstance(v, (Access, Buffer)) else v for k, v in values.items()}
    cls = TOYS[mnemonic]
    kernel = Frame("kernels/product.py", 40, "product", 4, 30)
    span = (Span((Frame("kernels/tiles.py", line, "tile.<locals>.load"), kernel)),) if line else ()
    instruction = cls(bind(cls, (), values), *span)
    builder.append(instruction)
    return instruction


def product() -> Program:
    """A small program with a bit of everything."""
    builder = Builder("product", get_target("trn2"))
    place = Span((Frame("kernels/product.py", 40, "product", 4, 30),))
    program = builder.program
    a = Buffer("a", (32, 64), bfloat16, PRIVATE, role="argument", label="a")
    out = Buffer("out", (64, 48), float32, SHARED, label="out", span=place)
    ones = Buffer(
        "ones", (2, 2), float32, PRIVATE, role="constant", label="ones", data=np.ones((2, 2), np.float32)
    )
    left = Buffer("left", (32, 64), bfloat16, SBUF, label="left", address=(0, 256), span=place)
    right = Buffer("sbuf.1", (32, 48), bfloat16, SBUF)
    right.address = (0, 0)
    acc = Buffer("acc", (64, 48), float32, PSUM, label="running sum", core=1)
    program.buffers += [a, out, ones, left, right, acc]
    program.arguments, program.results, program.result_form = [a], [out], "tuple"
    program.flags.add("fixed_order")
    program.span = Span((Frame("kernels/product.py", 12, "product", 0),))
    load = stage(builder, "toy_move", line=7, dst=left, src=a)
    stage(builder, "toy_product", dst=acc, stationary=left, moving=right)
    second = stage(
        builder, "toy_product", dst=acc, stationary=left, moving=right, mode=matmul_perf_mode.double_row
    )
    second.after = (load,)
    stage(builder, "toy_scale", line=9, dst=acc, src=acc, factor=-math.inf, bias=1, name="it's")
    stage(builder, "toy_move", line=7, dst=out, src=Access(left, float32, 3, (64, 48), (0, 0)))
    program.cores.append([])
    return program


def test_text_of_a_program(golden: Golden) -> None:
    golden(print_program(product()), suffix=".nkir")


def test_str_and_equality_are_the_text() -> None:
    one, other = product(), product()
    assert str(one) == print_program(one)
    assert one == other
    other.buffers[3].address = (0, 0)
    assert one != other
    assert one != "text"


def test_only_what_differs_from_the_default_is_written() -> None:
    builder = Builder("k", get_target("trn2"))
    tile = Buffer("t", (4, 8), float32, SBUF)

    def text(**values: Any) -> str:
        instruction = stage(builder, "toy_scale", dst=tile, src=tile, **values)
        return print_program(Program("k", builder.target, cores=[[instruction]])).splitlines()[-1].strip()

    assert text() == "toy_scale dst=%t, src=%t engine=vector"
    assert text(factor=1.0, bias=None, name=None) == text()
    assert text(factor=1) == "toy_scale dst=%t, src=%t {factor=1} engine=vector"
    assert text(engine=Engine.gpsimd) == "toy_scale dst=%t, src=%t engine=gpsimd"
    assert text(bias=0) == "toy_scale dst=%t, src=%t, bias=0 engine=vector"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (5e-324, "5e-324"),
        (1e300, "1e+300"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (True, "True"),
        (2**70, "1180591620717411303424"),
        (np.float64(0.5), "0.5"),
        (np.float32(0.1), "0.10000000149011612"),
        (np.int8(-3), "-3"),
    ],
)
def test_numbers(value: Any, text: str) -> None:
    builder = Builder("k", get_target("trn2"))
    tile = Buffer("t", (4, 8), float32, SBUF)
    instruction = stage(builder, "toy_scale", dst=tile, src=tile, factor=value, bias=value)
    line = print_program(Program("k", builder.target, cores=[[instruction]])).splitlines()[-1]
    assert line == f"  toy_scale dst=%t, src=%t, bias={text} {{factor={text}}} engine=vector"


TILE = Buffer("t", (32, 6, 10), float32, SBUF)
HBM = Buffer("h", (4, 32, 10), float32, PRIVATE)
BYTES = Buffer("b", (8, 6), int8, SBUF)


@pytest.mark.parametrize(
    ("access", "text"),
    [
        (Access.whole(TILE), "%t"),
        (Access(TILE, float32, 0, (32, 6, 10), (60, 10, 1)), "%t"),
        (Access(TILE, float32, 0, (16, 6, 10), (60, 10, 1)), "%t[0:16, :, :]"),
        (Access(TILE, float32, 0, (16, 6, 10), (120, 10, 1)), "%t[0:32:2, :, :]"),
        (Access(TILE, float32, 61, (31, 6, 3), (60, 10, 3)), "%t[1:32, :, 1:10:3]"),
        (Access(TILE, float32, 20, (32, 10), (60, 1)), "%t[:, 2, :]"),
        (Access(TILE, float32, 27, (32, 1), (60, 10)), "%t[:, 2:3, 7]"),
        (Access(TILE, float32, 27, (32, 1), (60, 1)), "%t[:, 2, 7:8]"),
        (Access(HBM, float32, 330, (10,), (1,)), "%h[1, 1, :]"),
        (Access(HBM, float32, 331, (), ()), "%h[1, 1, 1]"),
        (Access(TILE, float32, 0, (32, 60), (60, 1)), "%t.ap([[60, 32], [1, 60]])"),
        (Access(TILE, float32, 5, (32, 4), (60, 0)), "%t.ap([[60, 32], [0, 4]], offset=5)"),
        (Access(TILE, float32, 9, (32, 10), (60, -1)), "%t.ap([[60, 32], [-1, 10]], offset=9)"),
        (Access(HBM, float32, 0, (10, 32), (1, 10)), "%h.ap([[1, 10], [10, 32]])"),
        (Access(TILE, bfloat16, 0, (32, 6, 20), (120, 20, 1)), "%t.view(bfloat16)"),
        (Access(TILE, int16, 1, (32, 6, 10), (120, 20, 2)), "%t.view(int16)[:, :, 1:20:2]"),
        (Access(BYTES, int16, 0, (8, 2), (3, 1)), "%b.view(int16)[:, 0:2]"),
        (Access(BYTES, float32, 0, (1, 1), (1, 1)), "%b.view(float32).ap([[1, 1], [1, 1]])"),
    ],
)
def test_windows(access: Access, text: str) -> None:
    assert access_text(access) == text


def test_names() -> None:
    assert name_text("flash.<locals>.fwd") == "'flash.<locals>.fwd'"
    assert [name_text(n) for n in ("größe", "a.b", "inf", "", "1a")] == [
        "größe",
        "a.b",
        "'inf'",
        "''",
        "'1a'",
    ]
    assert [buffer_text(n) for n in ("acc.1", "acc.x", "a b")] == ["%acc.1", "%'acc.x'", "%'a b'"]


def test_places_share_their_callers() -> None:
    builder = Builder("k", get_target("trn2"))
    tile = Buffer("t", (4, 8), float32, SBUF)
    for line in (3, 5, 3):
        stage(builder, "toy_scale", line=line, dst=tile, src=tile)
    *instructions, title, outer, first, second = print_program(builder.program).splitlines()
    assert [line.split()[-1] for line in instructions[-3:]] == ["#2", "#3", "#2"]
    assert title == "sources"
    assert outer == "  #1 = 'kernels/product.py':40:4-30 in product"
    assert first == "  #2 = 'kernels/tiles.py':3 in 'tile.<locals>.load' < #1"
    assert second == "  #3 = 'kernels/tiles.py':5 in 'tile.<locals>.load' < #1"


def test_what_if_machines() -> None:
    trn2 = get_target("trn2")
    changed = dataclasses.replace(trn2, pmax=64, default_dge_static=dge_mode.none)
    assert " on trn2 {default_dge_static=none, pmax=64}\n" in print_program(Program("k", changed))
    renamed = dataclasses.replace(trn2, name="half chip", pmax=64)
    assert " on 'half chip' like trn2 {pmax=64}\n" in print_program(Program("k", renamed))
