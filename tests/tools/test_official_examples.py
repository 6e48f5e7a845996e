"""Kernels are found in pages and in the files they include, run on made-up arguments, and said to be refused or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.official_blocks import blocks
from tools.official_examples import main, outcomes, page

GUIDE = """
Doubling
========

.. code-block:: python
   :linenos:

   @nki.jit
   def twice(x):
       tile = nl.load(x)
       out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
       nl.store(out, nl.add(tile, tile))
       return out

   later = twice.with_schedule([])
   later(device_tensor)

A literal paragraph, with its result where it cannot be returned::

   def plain(x):
       out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
       nisa.dma_copy(dst=out, src=x)
       return out

.. code-block:: python

   @nki.jit
   def sketch(x):
       ...

   @nki.jit
   def unknown(x):
       return nowhere

.. code-block:: python

   @nki.jit
   def broken(x):

.. literalinclude:: kernels/whole.py
.. nki_example:: /nki/kernels/whole.py
"""
API = '''
def copy(dst, src):
    r"""Copies.

    .. code-block:: python

        @nki.jit
        def from_docstring(x):
            return nl.shared_constant(x)"""
'''
WHOLE = """import nki
import nki.language as nl
from sizes import COLUMNS


@nki.jit
def narrow(x):
    out = nl.ndarray((128, COLUMNS), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x[:, :COLUMNS]))
    return out
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "nki/guide.rst": GUIDE,
        "nki/api/nki/isa/__init__.py": API,
        "nki/kernels/whole.py": WHOLE,
        "nki/kernels/sizes.py": "COLUMNS = 8\n",
        "nki/library/other.rst": GUIDE,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_each_kernel_is_run_or_said_why_not(checkout: Path) -> None:
    found = [each for block in blocks(checkout) for each in outcomes(block)]
    assert [(each.function, each.status) for each in found] == [
        ("from_docstring", "refused"),
        ("twice", "ok"),
        ("later", "ok"),
        ("plain", "refused"),
        ("sketch", "fragment"),
        ("unknown", "refused"),
        ("broken", "fragment"),
        ("narrow", "ok"),
    ]
    by_name = {each.function: each for each in found}
    assert by_name["plain"].detail.startswith("ReturnError")
    assert by_name["plain"].changed == "its results in shared HBM (trn2)"
    assert "nowhere" in by_name["unknown"].detail
    text = page(found)
    assert "3 run, 3 cannot, 2 are fragments." in text
    assert "runs with its results in shared HBM" in text


def test_lines_are_those_of_the_page(checkout: Path) -> None:
    guide = GUIDE.splitlines()
    found = [each for block in blocks(checkout) for each in outcomes(block) if each.page == "nki/guide.rst"]
    for each in found:
        if each.function != "later" and each.function != "broken":
            assert each.function in guide[each.line - 1] or each.function in guide[each.line]


def test_the_command(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(checkout), "--json"]) == 1  # refusals without a known reason
    records = json.loads(capsys.readouterr().out)
    assert {"page", "line", "function", "status", "detail", "changed", "reason"} == set(records[0])
    (checkout / "nki" / "guide.rst").write_text("nothing", encoding="utf-8")
    (checkout / "nki" / "api" / "nki" / "isa" / "__init__.py").write_text("", encoding="utf-8")
    assert main([str(checkout)]) == 0
    assert capsys.readouterr().out == "0 run, 0 cannot, 0 are fragments\n"
