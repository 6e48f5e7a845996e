"""`nki isa` and `nki doctor`: what there is, and what is installed."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import nki
from nki.cli import main

Capture = pytest.CaptureFixture[str]


def fine(capsys: Capture, *words: str) -> str:
    """The output of a command that succeeds."""
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_isa(capsys: Capture) -> None:
    listed = fine(capsys, "isa")
    assert re.search(r"^nc_matmul +tensor +\S", listed, re.MULTILINE)
    one = fine(capsys, "isa", "memset")
    assert one.startswith("memset(dst, value, engine=") and "Vector" in one
    rows = json.loads(fine(capsys, "isa", "--json"))
    assert {"name", "engines", "since", "summary"} == set(rows[0])
    assert len(rows) == len(listed.splitlines())
    assert json.loads(fine(capsys, "isa", "memset", "--json"))["name"] == "memset"


def test_doctor(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    out = fine(capsys, "doctor")
    assert f"open-nki {nki.__version__}" in out and "default target: trn2" in out
    found = json.loads(fine(capsys, "doctor", "--json"))
    assert found["target"] == "trn2" and found["missing"] == []
    assert found["packages"]["numpy"] == np.__version__
    assert found["environment"]["NEURON_PLATFORM_TARGET_OVERRIDE"] == "trn2"
