"""The programs of the norms: both ways to run them, their text, their checks, on every generation; their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki.target import get_target
from nki_lib.norm.layer_norm.backward import layer_norm_backward
from nki_lib.norm.layer_norm.kernel import layer_norm
from nki_lib.norm.rms_norm.backward import rms_norm_backward
from nki_lib.norm.rms_norm.kernel import rms_norm
from nki_lib.norm.weight_gradients import weight_gradients

RANDOM = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16


def array(*shape: int, dtype: Any = BF16) -> Any:
    return RANDOM.standard_normal(shape, np.float32).astype(dtype)


ROWS, WEIGHT, COLUMN = array(700, 96), array(96), array(700, 1, dtype=np.float32)
LONG = array(5, 8224, dtype=np.float32)
CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rms": (rms_norm, (ROWS, ROWS, WEIGHT, 1e-6, 1.0, None)),
    "rms, long": (rms_norm, (LONG, LONG, LONG[0], 1e-6, 0.0, None)),
    "rms, rows of 8 bits": (rms_norm, (ROWS, None, WEIGHT, 1e-6, 0.0, "float8_e4m3fn")),
    "rms, blocks of 8 bits": (rms_norm, (ROWS, ROWS, None, 1e-6, 0.0, "mxfp8_e5m2")),
    "layer": (layer_norm, (ROWS, ROWS, WEIGHT, WEIGHT, 1e-6, None)),
    "layer, float32": (layer_norm, (LONG[:, :600], None, LONG[0, :600], LONG[1, :600], 1e-6, None)),
    "layer, long": (layer_norm, (LONG, None, LONG[0], LONG[1], 1e-6, None)),
    "rms, gradient": (rms_norm_backward, (ROWS, ROWS, ROWS, WEIGHT, 1e-6, 0.0)),
    "layer, gradient": (layer_norm_backward, (ROWS, ROWS, ROWS, WEIGHT, 1e-6)),
    "layer, long gradient": (layer_norm_backward, (LONG, LONG, None, LONG[0], 1e-6)),
    "weights": (weight_gradients, (ROWS, ROWS, COLUMN, COLUMN, True)),
}


def bits(found: Any) -> list[bytes]:
    """The bytes of one result or of several."""
    return [values.tobytes() for values in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("name", CALLS)
def test_both_ways_and_text_give_the_same_bits(name: str, tmp_path: Path) -> None:
    kernel, arguments = CALLS[name]
    planned = bits(kernel(*arguments))
    assert bits(nki.simulate(kernel, eager=True)(*arguments)) == planned
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments)), encoding="utf-8")
    tensors = [a for a in arguments if isinstance(a, np.ndarray)]
    assert bits(nki.load_ir(path)(*tensors)) == planned


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", CALLS)
def test_clean_under_every_check(name: str, target: str) -> None:
    kernel, arguments = CALLS[name]
    assert [str(d) for d in kernel.check(*arguments, target=target) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*arguments)
    assert bits(sanitized) == bits(nki.simulate(kernel, target=target)(*arguments))


TIMED = {
    "rms, bfloat16": (rms_norm, (4096, 2048), BF16, 1, (1e-6, 0.0, None)),
    "rms, float32": (rms_norm, (4096, 2048), np.float32, 1, (1e-6, 0.0, None)),
    "layer, bfloat16": (layer_norm, (4096, 2048), BF16, 2, (1e-6, None)),
    "layer, float32": (layer_norm, (4096, 2048), np.float32, 2, (1e-6, None)),
    "layer, bfloat16, wide": (layer_norm, (8192, 4096), BF16, 2, (1e-6, None)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMED)
def test_moving_the_rows_bounds_the_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On trn2: at most 1.3 times what it takes to load and store all rows once."""
    monkeypatch.setenv("NKI_CHECK", "0")
    kernel, shape, dtype, vectors, rest = TIMED[name]
    x = np.zeros(shape, dtype)
    profile = nki.profile(kernel, target="trn2")(x, None, *[x[0]] * vectors, *rest)
    machine = get_target("trn2")
    bound = 2 * x.nbytes / (machine.dma_engines * machine.dma_engine_bytes_per_us)
    assert profile.latency_us <= 1.3 * bound
