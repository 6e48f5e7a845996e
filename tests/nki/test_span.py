"""Places in the user's source: how they are shown, notebook cells included."""

from __future__ import annotations

import linecache
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import nki
import nki.language as nl
from nki import errors
from nki.span import UNKNOWN, Frame, Span, shown_file

CELL = "/tmp/ipykernel_17/2718281828.py"


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of IPython whose third cell is `CELL`."""

    def format_code_name(name: str) -> tuple[str, str] | None:
        return ("Cell", "In[3]") if name == CELL else None

    shell = types.SimpleNamespace(compile=types.SimpleNamespace(format_code_name=format_code_name))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(linecache.cache, CELL, (12, None, ["add(x, y)\n"], CELL))


def test_what_has_no_source_has_no_excerpt() -> None:
    assert UNKNOWN.excerpt() == []
    assert str(errors.KernelError("no", span=UNKNOWN)) == "no"


@pytest.mark.usefixtures("notebook")
def test_a_cell_is_called_by_its_number_and_keeps_its_text() -> None:
    assert shown_file(CELL) == "Cell In[3]"
    assert Frame(shown_file(CELL), 1, "<module>").text == "add(x, y)"
    assert shown_file(__file__) == __file__


def test_without_a_notebook_a_file_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert shown_file(CELL) == CELL


def test_an_excerpt_underlines_the_expression_and_names_the_callers() -> None:
    span = Span((Frame("missing.py", 7, "inner", 4, 9), Frame("missing.py", 12, "outer")))
    assert span.excerpt() == [
        "  --> missing.py:7, in inner",
        "      called from missing.py:12, in outer",
    ]


def test_a_notebook_shows_an_error_without_our_own_frames() -> None:
    error = errors.KernelError("no", remedy="yes")
    assert error._render_traceback_() == ["KernelError: no\n  help:    yes"]


@nki.jit
def copy(x):  # type: ignore[no-untyped-def]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


def test_an_argument_comes_from_the_kernels_definition_not_from_the_call() -> None:
    """The program is kept for later calls from elsewhere, so it must not name the first one."""
    program = copy.ir(np.zeros((2, 2), np.float32))
    span = program.arguments[0].span
    assert (Path(span.file).name, span.frames[0].text, len(span.frames)) == (
        "test_span.py",
        "def copy(x):  # type: ignore[no-untyped-def]",
        1,
    )
