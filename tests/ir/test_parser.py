"""Reading program texts: what people may write, and what they are told when it is no program."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from nki import errors
from nki.enums import dge_mode
from nki.ir import REGISTRY, Program, parse_program, print_program
from nki.ir.tree import DEEPEST_LIST
from nki.span import UNKNOWN
from tests.conftest import Golden

TEXT = """\
// A hand-written program.
nkir 1
kernel product(%a, %b) -> %out on trn2 #1

buffers
  %a: [32, 64] bfloat16 in private_hbm argument
  %b: [32, 48] bfloat16 in private_hbm argument   // the moving side
  %out: [64, 48] float32 in shared_hbm #2
  %ones: [4] float32 in private_hbm constant data
    'AACAPwAAgD8A'
    'AIA/AACAPw=='
  %left: [32, 64] bfloat16 in sbuf at (0, 0)
  %right: [32, 48] bfloat16 in sbuf
  %acc: [64, 48] float32 in psum fixed at (0, 2048) label 'running sum'
  %res: [64, 2, 24] float32 in sbuf

core 0
  toy_move dst=%left, src=%a
  @loaded toy_move dst=%right, src=%b #3
  toy_product dst=%acc, stationary=%left, moving=%right after=[@loaded]
  toy_product dst=%acc, stationary=%left, moving=%right
  toy_scale dst=%res, src=%acc, bias=1.0 {factor=0.5, name='scaled'}
  toy_scale dst=%res[:, 0, :], src=%res[:, 1, :] engine=gpsimd
  toy_move dst=%out, src=%res
sources
  #1 = 'product.py':12 in product
  #2 = 'product.py':14:4-30 in product
  #3 = 'tiles.py':3:8 in load < #2
"""


def changed(old: str, new: str) -> str:
    """The text with one part exchanged."""
    assert TEXT.count(old) == 1
    return TEXT.replace(old, new)


def refused(text: str, error: type[errors.NkiError] = errors.IrSyntaxError, name: str = "try.nkir") -> str:
    """The error text of a text that must be refused."""
    with pytest.raises(error) as raised:
        parse_program(text, name)
    assert type(raised.value) is error
    return str(raised.value)


def test_what_a_text_means() -> None:
    program = parse_program(TEXT)
    a, b, out, ones, left, right, acc, _ = program.buffers
    assert (program.name, program.target.name, program.result_form) == ("product", "trn2", "one")
    assert program.arguments == [a, b]
    assert program.results == [out]
    assert ones.data is not None
    assert np.array_equal(ones.data, np.ones(4, np.float32))
    assert (left.address, left.placed, left.label) == ((0, 0), False, "left")
    assert (right.address, right.placed) == (None, False)
    assert (acc.address, acc.placed, acc.label) == ((0, 2048), True, "running sum")
    _, load, first, second, scale, half, _ = program.cores[0]
    assert first.after == (load,)
    assert load.span.frames[0].file == "tiles.py"
    assert [frame.line for frame in load.span.frames] == [3, 14]
    assert first.span is UNKNOWN
    assert (first.accumulate, second.accumulate) == (False, True)  # type: ignore[attr-defined]
    assert (scale.factor, scale.bias, scale.name) == (0.5, 1.0, "scaled")  # type: ignore[attr-defined]
    assert half.engine.name == "gpsimd"


def test_layout_does_not_matter() -> None:
    program = parse_program(TEXT)
    text = print_program(program)
    for other in (
        "\n\n" + text.replace("\n", "\r\n"),
        text.replace("\n", "   // comment\n  \n\t"),
        text.replace("  ", "\t").rstrip("\n"),
        re.sub(r"([=,])(?![\d:='])", r"\1 ", text),
    ):
        assert parse_program(other) == program


def test_warnings_become_diagnostics() -> None:
    program = parse_program(changed("factor=0.5", "factor=0"))
    (found,) = program.diagnostics
    assert (found.code, found.severity) == ("toy_scale", "warning")
    assert print_program(program) == print_program(parse_program(print_program(program)))


def test_smallest_program() -> None:
    program = parse_program("nkir 1\nkernel k() on trn3")
    assert program == Program("k", program.target)
    assert program.cores == [[]]


def test_what_if_machines() -> None:
    text = "nkir 1\nkernel k() on 'half chip' like trn2 {default_dge_static=none, pmax=64}\ncore 0\n"
    program = parse_program(text)
    target = program.target
    assert (target.name, target.pmax, target.default_dge_static) == ("half chip", 64, dge_mode.none)
    assert print_program(program) == text


def test_a_file_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "broken.nkir"
    path.write_text(changed("src=%a\n", "src=%aa\n"), encoding="utf-8")
    text = refused(path.read_text(encoding="utf-8"), name=str(path))
    assert f"{path}:18:27: unknown buffer %aa" in text
    assert "   18 |   toy_move dst=%left, src=%aa\n" in text


def test_nothing_is_executed() -> None:
    """Names and strings that would be code elsewhere stay names and strings (decision D10)."""
    trap = "__import__('os').abort()"
    program = parse_program(changed("name='scaled'", f'name="{trap}"'))
    assert program.cores[0][4].name == trap
    refused(changed("factor=0.5", "factor=__import__"))
    refused(changed("factor=0.5", f"factor={trap}"))


MISTAKES = {
    "no_header": ("nkir 1\n", ""),
    "no_version": ("nkir 1\n", "nkir\n"),
    "no_target": (" on trn2", ""),
    "result_without_arrow": (" -> %out", " %out"),
    "undeclared_argument": ("product(%a, %b)", "product(%a, %bb)"),
    "unknown_dtype": ("[32, 48] bfloat16 in sbuf", "[32, 48] bfloat in sbuf"),
    "unknown_memory": ("bfloat16 in sbuf at", "bfloat16 in sram at"),
    "declared_twice": ("%right: [32, 48]", "%left: [32, 48]"),
    "bad_data": ("'AACAPwAAgD8A'", "'AACAPwAAgD8'"),
    "unknown_instruction": ("toy_move dst=%left", "toy_mov dst=%left"),
    "unknown_parameter": ("stationary=%left, moving=%right\n", "stationry=%left, moving=%right\n"),
    "missing_parameter": ("toy_move dst=%left, src=%a", "toy_move dst=%left"),
    "parameter_twice": ("toy_move dst=%left, src=%a", "toy_move dst=%left, dst=%a"),
    "unknown_buffer": ("toy_move dst=%left", "toy_move dst=%lft"),
    "number_for_a_tensor": ("toy_move dst=%left, src=%a", "toy_move dst=%left, src=2"),
    "word_for_a_number": ("factor=0.5", "factor=half"),
    "attribute_outside": ("bias=1.0 {factor=0.5, ", "bias=1.0, factor=0.5 {"),
    "operand_inside": ("bias=1.0 {", "{bias=1.0, "),
    "unknown_engine": ("engine=gpsimd", "engine=gpsmd"),
    "other_engine": ("src=%a\n", "src=%a engine=vector\n"),
    "unknown_label": ("after=[@loaded]", "after=[@later]"),
    "label_twice": ("  toy_move dst=%left", "  @loaded toy_move dst=%left"),
    "unknown_place": ("src=%b #3", "src=%b #9"),
    "place_twice": ("#3 = ", "#2 = "),
    "caller_below": ("#2 = 'product.py':14:4-30 in product", "#2 = 'product.py':14 in product < #3"),
    "unclosed_window": ("%res[:, 0, :]", "%res[:, 0, :"),
    "too_few_indices": ("%res[:, 0, :]", "%res[:, 0]"),
    "stray_character": ("src=%a\n", "src=%a ?\n"),
    "unclosed_string": ("'scaled'", "'scaled"),
    "bad_escape": ("'scaled'", r"'\scaled'"),
    "core_out_of_order": ("core 0", "core 1"),
    "nested_too_deep": ("factor=0.5", f"factor={'[' * (DEEPEST_LIST + 1)}{']' * (DEEPEST_LIST + 1)}"),
    "second_line_of_an_instruction": (
        "stationary=%left, moving=%right\n",
        "stationary=%left,\n moving=%right\n",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_syntax_errors(mistake: str, golden: Golden) -> None:
    golden(refused(changed(*MISTAKES[mistake])))


def test_end_of_text() -> None:
    assert "try.nkir:2:8: expected" in refused("nkir 1\nkernel ")
    assert "found the end of the text" in refused("")


def test_other_versions(golden: Golden) -> None:
    golden(refused(changed("nkir 1", "nkir 2") + "??", errors.IrVersionError), "newer")
    golden(refused(changed("nkir 1", "nkir 0"), errors.IrVersionError), "older")
    assert issubclass(errors.IrVersionError, errors.IrSyntaxError)


ILLEGAL = {
    "shapes": ("src=%res[:, 1, :]", "src=%res[:, 1, 0:23]", errors.OperandShapeError),
    "memory": ("toy_move dst=%left", "toy_move dst=%acc", errors.MemoryError_),
    "index": ("src=%res[:, 1, :]", "src=%res[:, 2, :]", errors.BoundsError),
    "pattern": ("src=%res[:, 1, :]", "src=%res.ap([[48, 64], [2, 24]], offset=24)", errors.BoundsError),
    "view": ("src=%res[:, 1, :]", "src=%right.view(float8_e5m2_x4)", errors.OperandDtypeError),
    "engine": ("engine=gpsimd", "engine=tensor", errors.EngineError),
    "result": ("-> %out", "-> %acc", errors.ReturnError),
    "no_argument": ("product(%a, %b)", "product(%a, %left)", errors.KernelError),
    "argument_left_out": ("product(%a, %b)", "product(%a)", errors.KernelError),
    "unknown_target": ("on trn2", "on trn9", errors.TargetError),
    "address": ("sbuf at (0, 0)", "sbuf at (100, 0)", errors.PartitionLimitError),
    "capacity": ("at (0, 2048)", "at (0, 16384)", errors.CapacityError),
    "empty_shape": ("%right: [32, 48]", "%right: [32, 0]", errors.ShapeError),
}


@pytest.mark.parametrize("fault", ILLEGAL)
def test_illegal_programs_are_refused_at_their_line(fault: str, golden: Golden) -> None:
    old, new, error = ILLEGAL[fault]
    golden(refused(changed(old, new), error))


def test_rows_that_do_not_divide() -> None:
    refused("nkir 1\nkernel k() on trn2\nbuffers\n %t: [4, 3] int8 in sbuf\ncore 0\n"
            " toy_scale dst=%t, src=%t.view(int16)", errors.ShapeError)  # fmt: skip


def test_an_empty_registry_says_what_to_import() -> None:
    before = dict(REGISTRY)
    REGISTRY.clear()
    try:
        assert "import nki.isa first" in refused(TEXT)
    finally:
        REGISTRY.update(before)


@pytest.mark.parametrize("change", ["{pmax=True}", "{pmax=none}", "{size=3}", "{name=1}", "{pmax=1, pmax=2}"])
def test_bad_numbers_of_a_machine(change: str) -> None:
    refused(f"nkir 1\nkernel k() on trn2 {change}\n")
