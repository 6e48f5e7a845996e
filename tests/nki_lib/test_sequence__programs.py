"""The programs of convolution and scan: both ways to run them, their text, their checks, their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki_lib.sequence.depthwise_conv1d import cases as conv_cases
from nki_lib.sequence.depthwise_conv1d.backward import depthwise_conv1d_backward
from nki_lib.sequence.depthwise_conv1d.kernel import depthwise_conv1d
from nki_lib.sequence.selective_scan import cases as scan_cases
from nki_lib.sequence.selective_scan.backward import selective_scan_backward
from nki_lib.sequence.selective_scan.channels import part_width
from nki_lib.sequence.selective_scan.kernel import selective_scan

RANDOM = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16


def array(*shape: int, dtype: Any = np.float32) -> Any:
    return RANDOM.standard_normal(shape, np.float32).astype(dtype)


def scan_arguments(d: int, n: int, length: int, dtype: Any, full: bool) -> tuple[Any, ...]:
    u, delta, B, C = (array(k, length, dtype=dtype) for k in (d, d, n, n))
    rest = (array(d), array(d, length, dtype=dtype), array(d, dtype=dtype)) if full else (None,) * 3
    return u, delta, -np.abs(array(d, n)), B, C, *rest, full


def gradient_arguments(d: int, n: int, length: int, dtype: Any, full: bool) -> tuple[Any, ...]:
    *tensors, softplus = scan_arguments(d, n, length, dtype, full)
    shape = (-(-length // part_width(n)), d, n)
    more = (array(*shape), tensors[0], array(*shape)) if full else (array(*shape), None, None)
    return tensors[1], *tensors, *more, softplus


CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "convolution": (
        depthwise_conv1d,
        (array(140, 70, dtype=BF16), array(140, 4), array(140), 3, 0, True, False, None),
    ),
    "convolution, two parts": (
        depthwise_conv1d,
        (array(3, 2100), array(3, 5), None, 2, 9, False, True, "bfloat16"),
    ),
    "convolution, one tap": (depthwise_conv1d, (array(3, 9), array(3, 1), None, 0, 0, False, False, None)),
    "its gradient": (
        depthwise_conv1d_backward,
        (array(140, 70), array(140, 70), array(140, 4), array(140), 3, True),
    ),
    "its gradient, plain": (
        depthwise_conv1d_backward,
        (array(3, 1100, dtype=BF16), array(3, 1100, dtype=BF16), array(3, 4), None, 3, False),
    ),
    "scan": (selective_scan, scan_arguments(140, 5, 70, BF16, True)),
    "scan, two parts": (selective_scan, scan_arguments(3, 16, 300, np.float32, False)),
    "scan, its gradient": (selective_scan_backward, gradient_arguments(140, 5, 70, BF16, True)),
    "scan, its gradient, two parts": (
        selective_scan_backward,
        gradient_arguments(3, 16, 300, np.float32, False),
    ),
}


def results(values: Any) -> list[bytes]:
    return [each.tobytes() for each in (values if isinstance(values, tuple) else (values,))]


@pytest.mark.parametrize("name", CALLS)
def test_both_ways_and_text_give_the_same_bits(name: str, tmp_path: Path) -> None:
    kernel, arguments = CALLS[name]
    planned = results(kernel(*arguments))
    assert results(nki.simulate(kernel, eager=True)(*arguments)) == planned
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments)), encoding="utf-8")
    tensors = [a for a in arguments if isinstance(a, np.ndarray)]
    assert results(nki.load_ir(path)(*tensors)) == planned


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", CALLS)
def test_clean_under_every_check(name: str, target: str) -> None:
    kernel, arguments = CALLS[name]
    assert [str(d) for d in kernel.check(*arguments, target=target) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*arguments)
    assert results(sanitized) == results(nki.simulate(kernel, target=target)(*arguments))


@pytest.mark.slow
@pytest.mark.parametrize("case", [conv_cases.CASES[0], scan_cases.CASES[0]], ids=lambda case: case.label)
def test_time_is_close_to_the_busiest_engine(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 1.1 times what the busiest engine needs, on trn2."""
    monkeypatch.setenv("NKI_CHECK", "0")
    profile = nki.profile(case.kernel, target="trn2")(*case.arguments())
    assert profile.latency_us <= 1.1 * max(engine.busy_us for engine in profile.engines.values())
