"""The programs of the cross entropy: both ways to run them, their text, their checks, their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki_lib.loss.cross_entropy.kernel import cross_entropy, cross_entropy_backward

TARGETS = ("trn2", "trn3")  # gathers are documented from trn2 on
CALLS = [
    (256, 40, np.float32, {}),
    (5, 9000, ml_dtypes.bfloat16, {}),
    (4, 9000, np.float16, {"weighted": True, "smoothing": 0.1, "z": 0.01, "cap": 5.0}),
]
BANDWIDTH = 368_000.0  # bytes in a microsecond on trn2: 16 DMA engines of 23 GB/s


def arguments(
    rows: int, classes: int, dtype: Any, options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    random = np.random.default_rng(0)
    logits = random.standard_normal((rows, classes), np.float32).astype(dtype)
    target = random.integers(-1, classes, rows, np.int32)
    given = {name: value for name, value in options.items() if name != "weighted"}
    if "weighted" in options:
        given["row_weight"], given["class_weight"] = (random.random(n, np.float32) for n in (rows, classes))
    return (logits, target), given


def both(call: Any) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """The kernels of both ways with their arguments."""
    (logits, target), given = arguments(*call)
    column = np.linspace(-1, 9, logits.shape[0], dtype=np.float32)
    return [
        (cross_entropy, (logits, target), given),
        (cross_entropy_backward, (column, logits, target, column), given),
    ]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_eager_planned_and_parsed_give_the_same_bits(call: Any, tmp_path: Path) -> None:
    for kernel, given, options in both(call):
        planned = nki.simulate(kernel, target="trn2")(*given, **options)
        eager = nki.simulate(kernel, target="trn2", eager=True)(*given, **options)
        path = tmp_path / "kernel.nkir"
        path.write_text(str(kernel.ir(*given, target="trn2", **options)), encoding="utf-8")
        tensors = [
            t for t in (*given, options.get("row_weight"), options.get("class_weight")) if t is not None
        ]
        again = nki.load_ir(path)(*tensors)
        assert planned.tobytes() == eager.tobytes() == again.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_clean_under_every_check(call: Any, target: str) -> None:
    for kernel, given, options in both(call):
        found = kernel.check(*given, target=target, **options)
        assert [str(d) for d in found if d.severity != "note"] == []
        sanitized = nki.simulate(kernel, target=target, sanitize=True)(*given, **options)
        assert sanitized.tobytes() == nki.simulate(kernel, target=target)(*given, **options).tobytes()


@pytest.mark.slow
def test_time_is_close_to_that_of_moving_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """4096 rows of 32768 classes in bfloat16 on trn2: at most 1.3 times what reading (and writing) them needs."""
    monkeypatch.setenv("NKI_CHECK", "0")
    logits, target = np.zeros((4096, 32768), ml_dtypes.bfloat16), np.zeros(4096, np.int32)
    column = np.zeros(4096, np.float32)
    forward = nki.profile(cross_entropy, target="trn2")(logits, target)
    backward = nki.profile(cross_entropy_backward, target="trn2")(column, logits, target, column)
    assert forward.latency_us <= 1.3 * logits.nbytes / BANDWIDTH
    assert backward.latency_us <= 1.3 * 2 * logits.nbytes / BANDWIDTH
