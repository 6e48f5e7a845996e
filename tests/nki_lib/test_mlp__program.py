"""The program of the MLP: both ways to run it, its text, its checks, on every generation; its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki.target import get_target
from nki_lib.linear.mlp.backward import mlp_backward
from nki_lib.linear.mlp.kernel import mlp

RANDOM = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16


def array(*shape: int, dtype: Any = BF16) -> Any:
    return (RANDOM.standard_normal(shape, np.float32) / 4).astype(dtype)


X, NARROW, WIDE = array(140, 144), array(520, 40, dtype=np.float32), array(136, 300)
UP, DOWN = array(264, 144), array(144, 264)
NORMS = {"rms": ("rms", array(144), None, 1e-6, 1.0), "layer": ("layer", array(144), array(144), 1e-5, 0.0)}
NONE = (None, None, None)
BIASES = (array(264), array(264), array(144))
NARROW_WEIGHTS = (None, array(30, 40, dtype=np.float32), array(40, 30, dtype=np.float32))
NARROW_BITS = tuple(weight.astype(ml_dtypes.float8_e4m3fn) for weight in (UP, UP, DOWN))
SCALES = tuple(array(weight.shape[0], dtype=np.float32) for weight in NARROW_BITS)
CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "gated, rms": (mlp, (X, X, (UP, UP, DOWN), BIASES, NONE, NORMS["rms"], "silu", None)),
    "gated, layer": (mlp, (X, None, (UP, UP, DOWN), NONE, NONE, NORMS["layer"], "gelu_tanh", 0.5)),
    "plain, float32": (mlp, (NARROW, None, NARROW_WEIGHTS, NONE, NONE, None, "relu2", 1.0)),
    "8 bits": (mlp, (X, X, NARROW_BITS, BIASES, SCALES, NORMS["rms"], "silu", None)),
    "gradient": (mlp_backward, (WIDE, WIDE, WIDE, WIDE[0], WIDE[1], "gelu_tanh", 0.5)),
    "plain gradient": (mlp_backward, (WIDE, WIDE, None, None, None, "silu", None)),
}


def bits(found: Any) -> list[bytes]:
    """The bytes of one result or of several."""
    return [values.tobytes() for values in (found if isinstance(found, tuple) else (found,))]


def arrays(values: Any) -> list[Any]:
    """All arrays among the arguments, in their order."""
    if isinstance(values, np.ndarray):
        return [values]
    return [array for value in values for array in arrays(value)] if isinstance(values, tuple) else []


@pytest.mark.parametrize("name", CALLS)
def test_both_ways_and_text_give_the_same_bits(name: str, tmp_path: Path) -> None:
    kernel, arguments = CALLS[name]
    planned = bits(kernel(*arguments))
    assert bits(nki.simulate(kernel, eager=True)(*arguments)) == planned
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments)), encoding="utf-8")
    assert bits(nki.load_ir(path)(*arrays(arguments))) == planned


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", CALLS)
def test_clean_under_every_check(name: str, target: str) -> None:
    kernel, arguments = CALLS[name]
    assert [str(d) for d in kernel.check(*arguments, target=target) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*arguments)
    assert bits(sanitized) == bits(nki.simulate(kernel, target=target)(*arguments))


def test_rows_that_do_not_fit_are_fewer_at_a_time() -> None:
    """A hidden layer of 14000 in float32: 512 rows of it would take 220 KiB of each partition."""
    weights = (None, np.zeros((14000, 8), np.float32), np.zeros((8, 14000), np.float32))
    x = np.zeros((300, 8), np.float32)
    assert not mlp(x, None, weights, NONE, NONE, None, "relu", None).any()


def profile(rows: int) -> Any:
    """Of width 2048, hidden layer 5632, bfloat16, on trn2; and the bytes of the weights."""
    wide, high = np.zeros((5632, 2048), BF16), np.zeros((2048, 5632), BF16)
    x = np.zeros((rows, 2048), BF16)
    norm = ("rms", x[0], None, 1e-6, 0.0)
    found = nki.profile(mlp, target="trn2")(x, x, (wide, wide, high), NONE, NONE, norm, "silu", None)
    return found, 3 * wide.nbytes


@pytest.mark.slow
def test_the_tensor_engine_bounds_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """4096 rows: at most 1.35 times what the busiest engine needs, the Tensor engine."""
    monkeypatch.setenv("NKI_CHECK", "0")
    found, _ = profile(4096)
    busiest = max(found.engines.values(), key=lambda engine: engine.busy_us)
    assert busiest is found.engines["tensor"]
    assert found.latency_us <= 1.35 * busiest.busy_us


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 16])
def test_loading_the_weights_bounds_few_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 1.3 times what it takes to load the weights once."""
    monkeypatch.setenv("NKI_CHECK", "0")
    found, moved = profile(rows)
    machine = get_target("trn2")
    assert found.latency_us <= 1.3 * moved / (machine.dma_engines * machine.dma_engine_bytes_per_us)
