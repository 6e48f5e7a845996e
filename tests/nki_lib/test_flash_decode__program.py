"""The program of decoding: both ways to run it, its text, its checks, its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki.jit import Options
from nki_lib.attention.flash_decode.kernel import flash_decode as kernel
from nki_lib.attention.flash_decode.update import write_rows

TARGETS = ("trn1", "trn2", "trn3")


def arguments(dtype: Any, blocks: bool = False) -> tuple[Any, ...]:
    """Two heads of two tokens in 200 of 256 keys, with every option; the cache whole or in blocks of one key."""
    random = np.random.default_rng(0)
    q = random.standard_normal((2, 4, 32), np.float32).astype(dtype)
    shape = (256, 2, 1, 32) if blocks else (2, 256, 32)
    k, v = (random.standard_normal(shape, np.float32).astype(dtype) for _ in range(2))
    sinks = np.zeros((2, 4, 1), np.float32)
    places = 2 * np.arange(256, dtype=np.int32)[::-1].reshape(1, 128, 2) if blocks else None
    return q, k, v, np.array([[200]], np.int32), 256, 2, 0.2, 70, 5.0, sinks, places


CALLS = [(np.float32, False), (ml_dtypes.bfloat16, True)]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_eager_and_planned_give_the_same_bits(call: Any) -> None:
    planned = kernel(*arguments(*call))
    eager = nki.simulate(kernel, eager=True)(*arguments(*call))
    assert planned.tobytes() == eager.tobytes()


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_text_parses_back_to_the_same_bits_and_time(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments(*call), target="trn2")), encoding="utf-8")
    again = nki.load_ir(path)
    tensors = [a for a in arguments(*call) if isinstance(a, np.ndarray)]
    staged = nki.simulate(kernel, target="trn2")(*arguments(*call))
    assert again(*tensors).tobytes() == staged.tobytes()
    times = [
        kernel.compiled(Options(target="trn2"), arguments(*call), {}).timeline(),
        again.compiled(Options(target="trn2"), tuple(tensors), {}).timeline(),
    ]
    assert times[0].latency_ps == times[1].latency_ps


@pytest.mark.parametrize("target", TARGETS)
def test_clean_under_every_check(target: str) -> None:
    call = arguments(np.float32)
    assert [str(d) for d in kernel.check(*call, target=target) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*call)
    assert sanitized.tobytes() == nki.simulate(kernel, target=target)(*call).tobytes()


@pytest.mark.parametrize("target", TARGETS)
def test_the_largest_step_fits(target: str) -> None:
    """As many rows as one launch takes, two full spans, the widest heads."""
    for dtype in (np.float32, ml_dtypes.bfloat16):
        q, cache = np.zeros((1, 64, 128), dtype), np.zeros((1, 16384, 128), dtype)
        call = (q, cache, cache, np.array([[9]], np.int32), 16384, 8, 0.1)
        assert [str(d) for d in kernel.check(*call, target=target) if d.severity != "note"] == []


def test_rows_are_written_where_they_belong_and_others_skipped() -> None:
    cache, rows = np.zeros((2, 3, 4), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    write_rows(cache, rows, np.array([[5], [6], [0]], np.int32))
    assert (cache[1, 2] == rows[0]).all() and (cache[0, 0] == rows[2]).all() and not cache[:, 1].any()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 4])
def test_time_is_close_to_reading_the_cache(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """8192 keys of 8 heads, bfloat16 on trn2: at most 1.3 times what 16 DMA engines need at 23 bytes a nanosecond."""
    monkeypatch.setenv("NKI_CHECK", "0")
    q, cache = np.zeros((8, rows, 128), ml_dtypes.bfloat16), np.zeros((8, 8192, 128), ml_dtypes.bfloat16)
    length = np.array([[8192]], np.int32)
    profile = nki.profile(kernel, target="trn2")(q, cache, cache, length, 8192, 1, 0.1)
    assert profile.latency_us <= 1.3 * 2 * cache.nbytes / (16 * 23) / 1000
