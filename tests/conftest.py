"""What every test shares: a fixed environment, Hypothesis profiles, and texts compared with files.

`golden(text)` compares with `tests/golden/<folder>/<module>/<test>.txt`; `make golden`, or pytest's
`--update-golden`, writes the file instead. Paths inside the checkout are made relative first, so the files
hold no machine's paths.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

# Before NumPy is loaded: one thread, so that sums have one order; and nothing from the developer's own shell.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
_KEPT = ("NKI_CHECK", "NKI_FUZZ_COUNT")
for _name in [name for name in os.environ if name.startswith(("NKI_", "NEURON_")) and name not in _KEPT]:
    del os.environ[_name]
os.environ.setdefault("NKI_CHECK", "2")  # print, parse and compare every program that is staged

import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"

hypothesis.settings.register_profile("ci", max_examples=15, deadline=None, derandomize=True)
hypothesis.settings.register_profile(
    "long",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


class Golden(Protocol):
    """The type of the `golden` fixture. `name` tells apart several texts of one test."""

    def __call__(self, text: str, name: str = "", suffix: str = ".txt") -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption(
        "--update-golden", action="store_true", help="write the files under tests/golden instead of comparing"
    )


@pytest.fixture(autouse=True)
def _float_printing() -> Iterator[None]:
    """Arrays print alike whatever an earlier test set."""
    with np.printoptions(
        precision=6, threshold=200, edgeitems=3, linewidth=100, suppress=False, floatmode="maxprec"
    ):
        yield


def golden_path(node: pytest.Item, name: str, suffix: str) -> Path:
    """`golden/<folder>/<module>/<test>[.<parameters>][.<name>]<suffix>`, without the prefix `test_`."""
    module = node.path.relative_to(TESTS).with_suffix("")
    function, _, parameters = node.name.partition("[")
    parts = [function.removeprefix("test_"), parameters.rstrip("]"), name]
    clean = [re.sub(r"[^\w+=,-]+", "_", part) for part in parts if part]
    return GOLDEN / module.parent / module.name.removeprefix("test_") / (".".join(clean) + suffix)


def _normal(text: str) -> str:
    """`text` with paths relative to the checkout, no blanks at line ends and one newline at the end."""
    text = text.replace(str(ROOT) + os.sep, "")
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n")) + "\n"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with the file kept for this test, or write the file under `--update-golden`."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(text: str, name: str = "", suffix: str = ".txt") -> None:
        path = golden_path(request.node, name, suffix)
        shown = path.relative_to(ROOT).as_posix()
        found = _normal(text)
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found, encoding="utf-8", newline="\n")
            return
        accept = "If the new text is right: `make golden` (pytest --update-golden), read the diff, commit it."
        if not path.exists():
            pytest.fail(f"{shown} does not exist. The text is:\n{found}\n{accept}", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if found != expected:
            lines = difflib.unified_diff(
                expected.splitlines(), found.splitlines(), shown, "this run", lineterm=""
            )
            pytest.fail("\n".join(lines) + f"\n\n{accept}", pytrace=False)

    return compare
