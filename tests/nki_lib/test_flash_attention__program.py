"""The program of flash attention: both ways to run it, its text, its checks, how often it is staged, its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki.jit import Options
from nki_lib.attention.flash_attention.backward import flash_attention_backward as backward
from nki_lib.attention.flash_attention.kernel import flash_attention as kernel

TARGETS = ("trn1", "trn2", "trn3")
CALLS = [
    ((2, 70, 32), 70, np.float32, True),
    ((1, 130, 64), 1100, ml_dtypes.bfloat16, True),
    ((1, 40, 128), 300, np.float16, False),
]


def arguments(shape: tuple[int, ...], keys: int, dtype: Any, causal: bool) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    q = random.standard_normal(shape, np.float32).astype(dtype)
    k, v = (random.standard_normal((keys, shape[2]), np.float32).astype(dtype) for _ in range(2))
    return q, k, v, shape[2] ** -0.5, causal


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
    tensors = arguments(*call)[:3]
    staged = nki.simulate(kernel, target="trn2")(*arguments(*call))
    assert again(*tensors).tobytes() == staged.tobytes()
    times = [
        kernel.compiled(Options(target="trn2"), arguments(*call), {}).timeline(),
        again.compiled(Options(target="trn2"), tensors, {}).timeline(),
    ]
    assert times[0].latency_ps == times[1].latency_ps


@pytest.mark.parametrize("target", TARGETS)
def test_clean_under_every_check(target: str) -> None:
    call = arguments(*CALLS[1])
    assert [str(d) for d in kernel.check(*call, target=target) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*call)
    assert sanitized.tobytes() == nki.simulate(kernel, target=target)(*call).tobytes()


def test_blocks_above_the_diagonal_are_skipped() -> None:
    def products(causal: bool) -> int:
        program = kernel.ir(*arguments((1, 1024, 16), 1024, np.float32, causal))
        return sum(type(i).__name__ == "nc_matmul" for core in program.cores for i in core)

    # Per query tile of 128: whole chunks of 512 scores, and one product for each 128 keys that are seen.
    tiles = range(1, 9)
    assert products(False) == sum(2 + 8 for _ in tiles)
    assert products(True) == sum(-(-tile // 4) + tile for tile in tiles)


@pytest.mark.slow
def test_time_is_close_to_the_busiest_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Causal, 8192 keys, head dimension 128, bfloat16 on trn2: at most 1.35 times what the busiest engine needs."""
    monkeypatch.setenv("NKI_CHECK", "0")
    tensor = np.zeros((8192, 128), ml_dtypes.bfloat16)
    profile = nki.profile(kernel, target="trn2")(tensor[None], tensor, tensor, 0.125, True)
    busiest = max(engine.busy_us for engine in profile.engines.values())
    assert profile.latency_us <= 1.35 * busiest


# ---- the extras, and the way back ---------------------------------------------------------------------------------


def extras(queries: int, keys: int) -> dict[str, Any]:
    """Everything that a launch can be given."""
    random = np.random.default_rng(1)
    return {
        "window": 90,
        "softcap": 5.0,
        "bias": random.standard_normal((1, queries, keys), np.float32),
        "q_ids": random.integers(0, 2, queries).astype(np.float32),
        "k_ids": random.integers(0, 2, keys).astype(np.float32),
    }


def backward_arguments(queries: int, keys: int, depth: int, dtype: Any) -> tuple[Any, ...]:
    q, k, v, scale, causal = arguments((1, queries, depth), keys, dtype, True)
    return q, k, v, q, q, np.full((1, queries), 5.0, np.float32), scale, causal, keys - queries


@pytest.mark.parametrize("target", TARGETS)
def test_extras_are_clean_and_the_same_both_ways(target: str) -> None:
    call, given = arguments((2, 140, 40), 200, ml_dtypes.bfloat16, True), extras(140, 200)
    given |= {"sinks": np.ones(2, np.float32), "return_lse": True}
    assert [str(d) for d in kernel.check(*call, target=target, **given) if d.severity != "note"] == []
    planned = nki.simulate(kernel, target=target)(*call, **given)
    eager = nki.simulate(kernel, target=target, eager=True)(*call, **given)
    assert [x.tobytes() for x in planned] == [x.tobytes() for x in eager]


@pytest.mark.parametrize("target", TARGETS)
def test_backward_is_clean_and_the_same_both_ways(target: str) -> None:
    call = backward_arguments(140, 200, 40, ml_dtypes.bfloat16)
    for given in ({}, extras(140, 200), extras(140, 200) | {"bias_gradient": True}):
        assert [str(d) for d in backward.check(*call, target=target, **given) if d.severity != "note"] == []
        planned = nki.simulate(backward, target=target)(*call, **given)
        eager = nki.simulate(backward, target=target, eager=True)(*call, **given)
        assert [x.tobytes() for x in planned] == [x.tobytes() for x in eager]


def test_blocks_outside_the_window_are_skipped() -> None:
    def products(function: Any, *call: Any, **given: Any) -> int:
        program = function.ir(*call, **given)
        return sum(type(i).__name__ == "nc_matmul" for core in program.cores for i in core)

    # A window of 128: 128 keys before the tile, those of the tile, a product for each; scores by chunks of 512.
    call = arguments((1, 2048, 16), 2048, np.float32, True)
    chunks = [1 if tile % 4 or tile == 0 else 2 for tile in range(16)]
    blocks = [1 if tile == 0 else 2 for tile in range(16)]
    assert products(kernel, *call, window=128) == sum(chunks) + sum(blocks)
    call = backward_arguments(2048, 2048, 16, np.float32)
    assert products(backward, *call, window=128) == 2 * sum(chunks) + 3 * sum(blocks)


@pytest.mark.slow
def test_time_of_the_way_back_is_close_to_the_busiest_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Causal, 8192 keys, head dimension 128, bfloat16 on trn2: at most 1.5 times what the busiest engine needs."""
    monkeypatch.setenv("NKI_CHECK", "0")
    t, lse = np.zeros((8192, 128), ml_dtypes.bfloat16), np.zeros((1, 8192), np.float32)
    profile = nki.profile(backward, target="trn2")(t[None], t, t, t[None], t[None], lse, 0.125, True, 0)
    assert profile.latency_us <= 1.5 * max(engine.busy_us for engine in profile.engines.values())
