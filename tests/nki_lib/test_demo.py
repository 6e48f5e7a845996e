"""`python -m nki_lib.demo` end to end, without its training."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from nki_lib.demo.__main__ import TEXT, main  # noqa: E402


@pytest.mark.slow
def test_demo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "made" / "profile.html"
    assert main(["--steps", "0", "--page", str(page)]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    for dtype, unit in (("float32", 2.0**-23), ("bfloat16", 2.0**-7)):
        largest, difference, theirs, ours = (float(word) for word in rows[dtype][1:5])
        assert 0 < difference <= 16 * unit * largest
        assert ours == pytest.approx(theirs, abs=largest * unit)
    for engine in ("tensor", "vector", "scalar", "gpsimd", "dma"):
        assert rows[engine][-1] == "busy"
    assert "Bottleneck on trn2" in out
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_text_is_what_was_shipped() -> None:
    """Byte for byte: the demo's figures depend on it, also where Git would change line ends."""
    digest = hashlib.sha256(TEXT.read_bytes()).hexdigest()
    assert digest == "7c0d5cbb3eb01d0813e623e7e43bff9fdc37dad0dbe2006f2833230c11172c65"
