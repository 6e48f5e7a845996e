"""How notebooks are compared: what a reader sees counts, what differs from run to run does not."""

from __future__ import annotations

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

from tools.tutorials import texts  # noqa: E402


def test_texts_are_streams_values_and_errors() -> None:
    v4 = nbformat.v4
    cell = v4.new_code_cell("f()")
    cell.outputs = [
        v4.new_output("stream", text="one\ntwo\n"),
        v4.new_output("execute_result", data={"text/plain": "<object at 0x7f00aa11bb22>"}),
        v4.new_output("error", ename="ValueError", evalue="\x1b[31mno\x1b[0m", traceback=[]),
    ]
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Title"), cell])
    assert list(texts(notebook)) == ["cell 1", "one", "two", "<object at 0x...>", "no"]
