"""Registers, loops and windows at dynamic places: their text, what it means, and mistakes in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nki import errors
from nki.dtypes import float32, int32
from nki.enums import MemoryRegion
from nki.ir import Access, Buffer, Instruction, Program, check_program, parse_program, print_program
from nki.ir.bounds import fits
from nki.ir.builder import Builder
from nki.ir.control import Dynamic, Loop, Register
from nki.ir.notation import access_text
from nki.ir.program import row_major
from nki.ir.tree import DEEPEST_LOOP
from nki.span import Frame, Span
from nki.target import get_target
from tests.conftest import Golden
from tests.ir.toys import TOYS

SBUF, PSUM = MemoryRegion.sbuf, MemoryRegion.psum
PRIVATE, SHARED = MemoryRegion.private_hbm, MemoryRegion.shared_hbm

TEXT = """\
nkir 1
kernel k(%x) -> %y on trn3
buffers
  %x: [64, 8] float32 in private_hbm argument
  %y: [4, 8] float32 in shared_hbm
  %rows: [4, 2] int32 in sbuf
  %sum: [4, 8] float32 in sbuf
  %t: [4, 8] float32 in sbuf loop @2
registers
  $n
  $j frozen
  $i frozen #1
  $'to go'
core 0
  toy_count dst=$n, src=9
  @1 toy_count dst=$'to go', src=$n, step=-1, unless=$n
  @2 for $i in range(0, $n, 4) { #1
    @first toy_move dst=%t, src=%x[0:4, :].at($i, stride=8, count=61) after=[@1]
    while $'to go' {
      toy_scale dst=%sum[:, 0:3], src=%t.ap([[8, 4], [0, 3]]).at_elements(%rows, stride=1, count=8) after=[@1, @first]
      toy_count dst=$'to go', src=$'to go', step=-1
    }
    for $j in range(-5, $i, 1) {
    }
  }
  toy_move dst=%y, src=%x.ap([[0, 4], [1, 8]]).at_rows(%rows[:, 0:1], stride=8, count=64)
  toy_move dst=%y[0, 0:2], src=%x[0, 0:2].at(%rows[0:1, 1:2], stride=1, count=7)
sources
  #1 = 'k.py':3 in k
"""


def changed(old: str, new: str) -> str:
    """The text with one part exchanged."""
    assert TEXT.count(old) == 1
    return TEXT.replace(old, new)


def test_what_a_text_means() -> None:
    program = parse_program(TEXT)
    n, j, i, to_go = program.registers
    assert [register.frozen for register in (n, j, i, to_go)] == [False, True, True, False]
    assert (i.name, i.span.line, to_go.name) == ("i", 3, "to go")
    first, start, outer, gather, last = program.cores[0]
    assert isinstance(outer, Loop)
    assert (outer.kind, outer.counter, outer.start, outer.stop, outer.step) == ("for", i, 0, n, 4)
    assert outer.span.line == 3
    load, inner, empty = outer.body
    assert isinstance(inner, Loop)
    assert isinstance(empty, Loop)
    assert (inner.kind, inner.condition, empty.start, empty.body) == ("while", to_go, -5, [])
    assert isinstance(load, Instruction)
    assert load.loops == (outer,)
    assert load.src.dynamic == Dynamic("scalar", i, 8, 61)  # type: ignore[attr-defined]
    assert inner.body[0].after == (start, load)  # type: ignore[union-attr]
    assert (first.src, first.step, first.unless) == (9, 1, None)  # type: ignore[union-attr]
    assert (start.src, start.step, start.unless) == (n, -1, n)  # type: ignore[union-attr]
    rows, tile = program.buffers[2], program.buffers[4]
    assert (rows.loop, tile.loop) == (None, outer)
    assert gather.src.dynamic.index == Access(rows, int32, 0, (4, 1), (2, 1))  # type: ignore[union-attr]
    assert last.src.dynamic.kind == "scalar"  # type: ignore[union-attr]


def test_text_of_a_program(golden: Golden) -> None:
    text = print_program(parse_program(TEXT))
    assert print_program(parse_program(text)) == text
    golden(text, suffix=".nkir")


def test_a_staged_program_is_read_back() -> None:
    builder = Builder("k", get_target("trn2"))
    x = Buffer("x", (64, 8), float32, PRIVATE, role="argument", label="x")
    builder.program.buffers, builder.program.arguments = [x], [x]
    for line in (3, 5):
        counter = builder.register("i", frozen=True)
        span = Span((Frame("k.py", line, "k"),))
        with builder.loop(Loop("for", counter=counter, stop=8, span=span)):
            tile = builder.buffer((1, 8), float32, SBUF, label="t")
            row = Access(x, float32, 0, (1, 8), (8, 1), Dynamic("scalar", counter, 8, 64))
            builder.append(TOYS["toy_move"]({"dst": Access.whole(tile), "src": row, "name": None}))
    text = print_program(builder.program)
    assert "%t.1: [1, 8] float32 in sbuf loop @2" in text
    again = parse_program(text)
    assert again == builder.program
    assert [buffer.loop for buffer in again.buffers] == [None, *again.cores[0]]


HBM = Buffer("h", (64, 8), float32, PRIVATE)
TILE = Buffer("t", (4, 8), float32, SBUF)
INDEX = Access.whole(Buffer("index", (4, 1), int32, SBUF))
ONE = Access(INDEX.buffer, int32, 0, (1, 1), (1, 1))
R = Register("r.1")


@pytest.mark.parametrize(
    ("buffer", "shape", "dynamic", "text", "inside"),
    [
        (HBM, (4, 8), Dynamic("scalar", R, 8, 61), "%h[0:4, :].at($r.1, stride=8, count=61)", True),
        (HBM, (64, 8), Dynamic("scalar", ONE, 1, 9), "%h.at(%index[0:1, :], stride=1, count=9)", True),
        (
            HBM,
            (65, 8),
            Dynamic("scalar", R, 8, 61),
            "%h.ap([[8, 65], [1, 8]]).at($r.1, stride=8, count=61)",
            False,
        ),
        (
            HBM,
            (4, 8),
            Dynamic("vector", INDEX, 8, 64),
            "%h[0:4, :].at_rows(%index, stride=8, count=64)",
            True,
        ),
        (HBM, (99, 8), Dynamic("vector", INDEX, 8, 64), None, True),
        (HBM, (1, 513), Dynamic("vector", INDEX, 8, 64), None, False),
        (
            TILE,
            (4, 3),
            Dynamic("indirect", INDEX, 1, 8),
            "%t[:, 0:3].at_elements(%index, stride=1, count=8)",
            True,
        ),
        (TILE, (4, 99), Dynamic("indirect", INDEX, 1, 8), None, True),
        (TILE, (5, 3), Dynamic("indirect", INDEX, 1, 8), None, False),
    ],
)
def test_windows(
    buffer: Buffer, shape: tuple[int, int], dynamic: Dynamic, text: str | None, inside: bool
) -> None:
    access = Access(buffer, float32, 0, shape, row_major(buffer.shape), dynamic)
    assert fits(access) is inside
    assert text is None or access_text(access) == text


MISTAKES = {
    "unknown_register": ("range(0, $n, 4)", "range(0, $m, 4)", errors.IrSyntaxError),
    "register_twice": ("  $n\n", "  $n\n  $n\n", errors.IrSyntaxError),
    "no_number_here": ("src=$n, step=-1, unless=$n", "src=$n, step=-1, unless=3", errors.IrSyntaxError),
    "register_for_a_tensor": ("toy_move dst=%t", "toy_move dst=$n", errors.IrSyntaxError),
    "buffer_for_a_register": ("src=$n, step", "src=%t, step", errors.IrSyntaxError),
    "counter_not_frozen": ("$i frozen", "$i", errors.KernelError),
    "counter_of_two_loops": ("for $j in", "for $i in", errors.KernelError),
    "counter_written": ("dst=$'to go', src=$'to go'", "dst=$i, src=$'to go'", errors.FrozenRegisterError),
    "counter_after_its_loop": (
        "src=%x[0, 0:2].at(%rows[0:1, 1:2],",
        "src=%x[0, 0:2].at($i,",
        errors.LoopScopeError,
    ),
    "step_of_zero": ("range(0, $n, 4)", "range(0, $n, 0)", errors.KernelError),
    "bound_of_33_bits": ("range(0, $n, 4)", "range(4294967296, $n, 4)", errors.KernelError),
    "loop_without_end": ("    }\n  }\n", "    }\n", errors.IrSyntaxError),
    "unknown_loop": ("loop @2", "loop @4", errors.IrSyntaxError),
    "loop_label_of_an_instruction": ("loop @2", "loop @1", errors.IrSyntaxError),
    "label_inside_a_loop": (
        "stride=8, count=64)",
        "stride=8, count=64) after=[@first]",
        errors.IrSyntaxError,
    ),
    "waits_for_a_loop": ("stride=8, count=64)", "stride=8, count=64) after=[@2]", errors.IrSyntaxError),
    "tile_after_its_loop": ("toy_move dst=%y,", "toy_move dst=%t,", errors.LoopScopeError),
    "index_after_its_loop": (
        "%rows[:, 0:1], stride",
        "%t.view(int32)[:, 0:1], stride",
        errors.LoopScopeError,
    ),
    "result_of_a_loop": (
        "%y: [4, 8] float32 in shared_hbm",
        "%y: [4, 8] float32 in shared_hbm loop @2",
        errors.ReturnError,
    ),
    "window_outside": (
        "src=%x[0:4, :].at(",
        "src=%x.ap([[8, 4], [1, 8]], offset=505).at(",
        errors.BoundsError,
    ),
    "count_of_zero": ("count=61", "count=0", errors.KernelError),
    "register_for_rows": (".at_rows(%rows[:, 0:1],", ".at_rows($n,", errors.ShapeError),
    "index_of_floats": ("%rows: [4, 2] int32", "%rows: [4, 2] float32", errors.ShapeError),
    "index_in_hbm": (".at_rows(%rows[:, 0:1],", ".at_rows(%x.view(int32)[0:4, 0:1],", errors.ShapeError),
    "index_outside": (".at_rows(%rows[:, 0:1],", ".at_rows(%rows.ap([[2, 5], [1, 1]]),", errors.BoundsError),
    "rows_on_chip": ("src=%x.ap([[0, 4], [1, 8]]).at_rows", "src=%sum.at_rows", errors.MemoryError_),
    "elements_in_hbm": (
        "src=%x.ap([[0, 4], [1, 8]]).at_rows",
        "src=%x[0:4, :].at_elements",
        errors.MemoryError_,
    ),
    "an_index_of_an_index": (".at($i,", ".at(%rows.at($i, stride=1, count=2),", errors.IrSyntaxError),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str, golden: Golden) -> None:
    old, new, error = MISTAKES[mistake]
    with pytest.raises(error) as raised:
        parse_program(changed(old, new), "try.nkir")
    assert type(raised.value) is error
    golden(str(raised.value))


def test_loops_nested_too_deep() -> None:
    def text(depth: int) -> str:
        return changed("  toy_move dst=%y,", "while $n {\n" * depth + "}\n" * depth + "  toy_move dst=%y,")

    parse_program(text(DEEPEST_LOOP))
    with pytest.raises(errors.IrSyntaxError, match="loops are nested more than"):
        parse_program(text(DEEPEST_LOOP + 1))


def outer_loop(program: Program) -> Loop:
    found = program.cores[0][2]
    assert isinstance(found, Loop)
    return found


def forget_register(program: Program) -> None:
    del program.registers[0]


def forget_counter(program: Program) -> None:
    outer_loop(program).counter = None


def unknown_kind(program: Program) -> None:
    outer_loop(program).kind = "until"


def name_twice(program: Program) -> None:
    program.registers.append(Register("n"))


def thaw(program: Program) -> None:
    program.registers[2].frozen = False


def step_back(program: Program) -> None:
    outer_loop(program).step = -1


def wait_for_a_pass(program: Program) -> None:
    last, inside = program.cores[0][-1], outer_loop(program).body[0]
    assert isinstance(last, Instruction) and isinstance(inside, Instruction)
    last.after = (inside,)


def use_after_the_loop(program: Program) -> None:
    program.buffers[3].loop = outer_loop(program)
    program.cores[0].append(program.cores[0].pop(-1))
    inside = outer_loop(program).body.pop(1)
    program.cores[0].append(inside)


FAULTS: list[tuple[Callable[[Program], None], type[errors.NkiError], str]] = [
    (forget_register, errors.KernelError, "toy_count writes $n, which is not declared"),
    (forget_counter, errors.KernelError, "a for loop without a counter"),
    (unknown_kind, errors.KernelError, "a until loop without a condition"),
    (name_twice, errors.KernelError, "two registers are called $n"),
    (thaw, errors.KernelError, "$i cannot count this loop"),
    (step_back, errors.KernelError, "$i cannot count like this"),
    (wait_for_a_pass, errors.KernelError, "toy_move waits for toy_move, which does not come before it"),
    (use_after_the_loop, errors.LoopScopeError, "toy_scale: `sum` was made in the body of a loop"),
]


@pytest.mark.parametrize(("fault", "error", "text"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_faults(fault: Callable[[Program], None], error: type[errors.NkiError], text: str) -> None:
    program = parse_program(TEXT)
    check_program(program)
    fault(program)
    with pytest.raises(error) as raised:
        check_program(program)
    assert type(raised.value) is error
    assert raised.value.message.startswith(text)
    assert raised.value.remedy
