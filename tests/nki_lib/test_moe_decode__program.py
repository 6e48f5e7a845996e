"""The program of moe_decode: both ways to run it, its text, its checks, what it reads, its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki_lib.moe.moe_decode.kernel import moe_decode as kernel

BF16 = ml_dtypes.bfloat16
TARGETS = ("trn1", "trn2", "trn3")


def call(kind: str, tokens: int, experts: int, choices: int, width: int, inner: int) -> Any:
    """Arguments of the kernel; the last token chooses nobody."""
    random = np.random.default_rng(0)

    def array(*shape: int, dtype: Any = BF16) -> Any:
        return random.standard_normal(shape, np.float32).astype(dtype)

    def bits(*shape: int) -> Any:
        return random.integers(100, 130, shape).astype(np.uint8)

    indices = random.random((tokens, experts)).argsort(1)[:, :choices].astype(np.int32)
    indices[-1] = -1
    routing = random.random((tokens, choices)).astype(np.float32), indices
    x, rest = array(tokens, width), {}
    gate_up, down = array(experts, width, 2, inner), array(experts, inner, width)
    if kind == "all":
        rest = {
            "activation": "clamped_swiglu",
            "gate_up_bias": array(experts, 2, inner),
            "down_bias": array(experts, width),
            "shared_gate_up": array(width, 2, 16),
            "shared_down": array(16, width),
            "shared_gate": array(1, tokens),
            "chosen": False,
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


CALLS = {kind: call(kind, 4, 5, 2, 160, 96) for kind in ("plain", "all", "fp8", "fp4")}


@pytest.mark.parametrize("kind", CALLS)
def test_both_ways_and_text_give_the_same_bits(kind: str, tmp_path: Path) -> None:
    arguments, rest = CALLS[kind]
    planned = kernel(*arguments, **rest)
    assert nki.simulate(kernel, eager=True)(*arguments, **rest).tobytes() == planned.tobytes()
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments, **rest)), encoding="utf-8")
    tensors = [a for a in (*arguments, *rest.values()) if isinstance(a, np.ndarray)]
    assert nki.load_ir(path)(*tensors).tobytes() == planned.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", CALLS)
def test_clean_under_every_check(kind: str, target: str) -> None:
    arguments, rest = CALLS[kind]
    assert [str(d) for d in kernel.check(*arguments, target=target, **rest) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*arguments, **rest)
    assert sanitized.tobytes() == nki.simulate(kernel, target=target)(*arguments, **rest).tobytes()


@pytest.mark.parametrize("kind", ["plain", "fp4"])
def test_the_largest_call_fits(kind: str) -> None:
    """As many tokens as one launch takes, an expert that is wider than SBUF."""
    arguments, rest = call(kind, 128, 2, 1, 4096, 2048)
    assert [str(d) for d in kernel.check(*arguments, target="trn2", **rest) if d.severity != "note"] == []


def test_the_program_does_not_grow_with_experts() -> None:
    sizes = [len(str(kernel.ir(*call("plain", 16, n, 2, 128, 128)[0])).splitlines()) for n in (4, 64)]
    assert sizes[1] < sizes[0] + 20


def moved(indices: Any) -> int:
    """Bytes that the DMA engines move for these choices."""
    (x, gate_up, down, weights, _), _ = call("plain", 4, 5, 2, 160, 96)
    return int(nki.profile(kernel, target="trn2")(x, gate_up, down, weights, indices).dma.bytes)


def test_an_expert_is_read_once_and_only_if_chosen() -> None:
    expert = 3 * 160 * 96 * 2
    one, nobody = np.full((4, 2), 3, np.int32), np.full((4, 2), -1, np.int32)
    base = moved(nobody)
    assert moved(one) - base == expert
    assert moved(np.array([[0, 1], [1, 0], [1, 1], [-1, -1]], np.int32)) - base == 2 * expert
    assert moved(np.array([[0, 1], [2, 3], [4, 4], [-1, 0]], np.int32)) - base == 5 * expert


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 16])
def test_time_is_close_to_reading_the_chosen_experts(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 of 64 experts, bfloat16 on trn2: at most 1.3 times what 16 DMA engines need at 23 bytes a nanosecond."""
    monkeypatch.setenv("NKI_CHECK", "0")
    random = np.random.default_rng(0)
    indices = random.random((tokens, 64)).argsort(1)[:, :8].astype(np.int32)
    x, weights = np.zeros((tokens, 2048), BF16), np.zeros((tokens, 8), np.float32)
    gate_up, down = np.zeros((64, 2048, 2, 768), BF16), np.zeros((64, 768, 2048), BF16)
    profile = nki.profile(kernel, target="trn2")(x, gate_up, down, weights, indices)
    expert = gate_up[0].nbytes + down[0].nbytes
    assert profile.latency_us <= 1.3 * len(np.unique(indices)) * expert / (16 * 23) / 1000
