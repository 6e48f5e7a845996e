"""The generated pages: current, complete, and readable as Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import nki
import nki.isa
import nki.language as nl
from nki.ir.instruction import REGISTRY
from nki.target import Target, get_target
from tests.source_tree import ROOT
from tools import docs
from tools.examples import example
from tools.instruction_page import instruction_page
from tools.pages import stale


def test_committed_pages_are_current() -> None:
    assert [*stale(docs.pages()), *docs.leftovers()] == [], "renew them with: make docs"


def test_every_instruction_has_a_page_with_its_parameters() -> None:
    pages = docs.pages()
    for cls in docs.documented():
        text = pages[ROOT / f"docs/isa/{cls.mnemonic}.md"]
        for name in cls.parameters:
            assert f"| `{name}` |" in text


def test_instructions_of_the_language_itself_have_none() -> None:
    names = {cls.mnemonic for cls in docs.documented()}
    assert names == {name for name in REGISTRY if hasattr(nki.isa, name)}
    assert "nc_matmul" in names


def test_every_hardware_number_is_listed_with_its_source() -> None:
    text = docs.pages()[ROOT / "docs/target.md"]
    for row in Target.rows():
        assert f"| `{row.name}` |" in text
        assert row.source.replace("|", "\\|") in text


def test_tables_have_one_width() -> None:
    for path, text in docs.pages().items():
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.strip().split("\n")}
            assert len(widths) == 1, f"{path.name}: {block}"


def test_pages_name_no_rule_of_unpublished_notes() -> None:
    assert [path.name for path, text in docs.pages().items() if re.search(r"\brules? \d", text)] == []


def test_examples_are_legal_instructions_of_their_class() -> None:
    target = get_target("trn3")
    found = [(cls, example(cls, target, nl.float32)) for cls in docs.documented()]
    made = [(cls, each) for cls, each in found if each is not None]
    assert all(type(each) is cls and each.cost(target) for cls, each in made)
    assert len(made) > len(found) * 2 // 3, "most declarations are enough to make an example"


def test_a_page_says_what_the_class_says() -> None:
    page = instruction_page(REGISTRY["tensor_copy"])
    assert page.summary == "dst[P, F] = src[P, F], on the Vector, Scalar or GpSimd engine."
    assert page.engines == "Vector, Scalar, GpSimd" and page.since == "trn1"
    assert [row.name for row in page.parameters] == ["dst", "src", "engine", "name"]
    assert [row.letter for row in page.limits] == ["P"]
    assert {row.target for row in page.costs} == {"trn1", "trn2", "trn3"}
    float32_on_trn2 = next(row for row in page.costs if (row.target, row.dtype) == ("trn2", "float32"))
    assert float32_on_trn2.engine == "vector"


def test_the_program_of_the_ir_page_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs/ir.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```text\n(nkir .*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    path = tmp_path / "scale.nkir"
    path.write_text(blocks[0], encoding="utf-8")
    kernel = nki.load_ir(path)
    assert str(kernel.ir()) == blocks[0]
    x = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    assert np.array_equal(kernel(x), 2 * x)


def test_addresses_may_be_left_out(tmp_path: Path) -> None:
    text = (ROOT / "docs/ir.md").read_text(encoding="utf-8")
    program = re.findall(r"^```text\n(nkir .*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    path = tmp_path / "scale.nkir"
    path.write_text(program.replace(" at (0, 0)", ""), encoding="utf-8")
    assert str(nki.load_ir(path).ir()) == program
