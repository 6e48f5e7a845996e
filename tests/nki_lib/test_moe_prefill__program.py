"""The program of moe_prefill: both ways to run it, its text, its checks, its time, and the tables it sorts into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.moe.moe_prefill.kernel import moe_prefill as kernel
from nki_lib.moe.moe_prefill.routing import route

BF16 = ml_dtypes.bfloat16


def call(kind: str, tokens: int, experts: int, choices: int, width: int, inner: int) -> Any:
    """Arguments of the kernel."""
    random = np.random.default_rng(0)

    def array(*shape: int, dtype: Any = BF16) -> Any:
        return random.standard_normal(shape, np.float32).astype(dtype)

    def bits(*shape: int) -> Any:
        return random.integers(100, 130, shape).astype(np.uint8)

    indices = random.random((tokens, experts)).argsort(1)[:, :choices].astype(np.int32)
    routing = random.random((tokens, choices)).astype(np.float32), indices
    x, rest = array(tokens, width), {}
    gate_up, down = array(experts, width, 2, inner), array(experts, inner, width)
    if kind == "all":
        rest = {
            "activation": "clamped_swiglu",
            "gate_up_bias": array(experts, 2, inner),
            "down_bias": array(experts, width),
            "shared_gate_up": array(1, width, 2, 16),
            "shared_down": array(1, 16, width),
        }
    elif kind == "fp8":
        gate_up, down = gate_up.astype(ml_dtypes.float8_e4m3fn), down.astype(ml_dtypes.float8_e4m3fn)
        scales = array(experts, 2, inner, dtype=np.float32), array(experts, width, dtype=np.float32)
        rest = {"gate_up_scale": scales[0], "down_scale": scales[1]}
    elif kind == "fp4":
        gate_up, down = bits(experts, width // 2, 2, inner), bits(experts, inner // 2, width)
        scales = bits(experts, width // 32, 2, inner), bits(experts, inner // 32, width)
        rest = {"gate_up_scale": scales[0], "down_scale": scales[1]}
    return (x, gate_up, down, *routing), rest


CALLS = {kind: call(kind, 256, 3, 2, 160, 96) for kind in ("plain", "all", "fp8", "fp4")}


@pytest.mark.parametrize("kind", CALLS)
def test_both_ways_and_text_give_the_same_bits(kind: str, tmp_path: Path) -> None:
    arguments, rest = CALLS[kind]
    planned = kernel(*arguments, **rest)
    assert nki.simulate(kernel, eager=True)(*arguments, **rest).tobytes() == planned.tobytes()
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments, **rest)), encoding="utf-8")
    tensors = [a for a in (*arguments, *rest.values()) if isinstance(a, np.ndarray)]
    assert nki.load_ir(path)(*tensors).tobytes() == planned.tobytes()


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("kind", CALLS)
def test_clean_under_every_check(kind: str, target: str) -> None:
    arguments, rest = CALLS[kind]
    assert [str(d) for d in kernel.check(*arguments, target=target, **rest) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*arguments, **rest)
    assert sanitized.tobytes() == nki.simulate(kernel, target=target)(*arguments, **rest).tobytes()


def test_the_program_does_not_grow_with_experts() -> None:
    sizes = [len(str(kernel.ir(*call("plain", 16, n, 2, 128, 128)[0])).splitlines()) for n in (4, 64)]
    assert sizes[1] < sizes[0] + 100


def test_time() -> None:
    """At most 1.35 times the work of the busiest engine, for experts of usual size, though there are few tokens."""
    arguments, _ = call("plain", 512, 4, 4, 2048, 768)
    profile = nki.profile(kernel, target="trn2")(*arguments)
    assert profile.latency_us <= 1.35 * max(engine.busy_us for engine in profile.engines.values())


@nki.jit
def tables(weights: Any, indices: Any, experts: int, first: int, parts: int) -> Any:
    routing = route(weights, indices, experts, first, parts, 2)
    results = []
    for tile in (
        routing.tokens,
        routing.pairs,
        routing.ends.reshape((1, (experts + 1) * parts)),
        routing.weights,
    ):
        result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=result, src=tile)
        results.append(result)
    return tuple(results)


@pytest.mark.parametrize(
    ("tokens", "experts", "choices", "first", "parts", "total"),
    [
        (256, 8, 2, 0, 1, 8),
        (1, 4, 4, 0, 1, 4),
        (16, 5, 3, 2, 2, 9),
        (512, 130, 4, 0, 3, 130),
    ],
)
def test_tables(tokens: int, experts: int, choices: int, first: int, parts: int, total: int) -> None:
    random = np.random.default_rng(0)
    indices = random.integers(0, total, (tokens, choices)).astype(np.int32)
    weights = random.random((tokens, choices)).astype(np.float32)
    token, pair, ends, dense = tables(weights, indices, experts, first, parts)
    rows, block, wanted_ends = min(tokens, 128), 0, []
    for e in range(experts):
        mine = np.flatnonzero((indices - first == e).any(1))
        for _ in range(parts):
            for start in range(0, len(mine), rows):
                wanted = np.full(rows, tokens)
                wanted[: len(mine) - start] = mine[start : start + rows]
                assert token[:, block].tolist() == wanted.tolist()
                assert pair[:, block].tolist() == (wanted * experts + e).tolist()
                block += 1
            wanted_ends.append(block)
        summed = (weights * (indices - first == e)).sum(1, dtype=np.float64)
        assert np.allclose(dense.reshape(tokens, experts)[:, e], summed, rtol=1e-6)
    assert ends[0].tolist() == [*wanted_ends, *[block] * parts]
    assert (token[:, block:] == tokens).all() and token.shape[1] >= block + 2
