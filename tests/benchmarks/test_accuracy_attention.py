"""Values of the attention kernels of the accuracy benchmark, at a fraction of their published sizes."""

from __future__ import annotations

import numpy as np
import pytest

import nki
from benchmarks.accuracy.kernels import (
    attention_backward,
    attention_gqa,
    attention_sd,
    attention_sd_allocated,
)
from benchmarks.accuracy.kernels import attention_tutorial as tutorial


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> bool:
    return bool(np.abs(found - expected).max() <= tolerance * np.abs(expected).max())


@pytest.mark.parametrize("code", [3, 9])
def test_tutorial(code: int) -> None:
    q, k, v = 0.3 * normal(3, 128, 512)
    kernel, options = (tutorial.tile_by_tile, ()) if code == 9 else (tutorial.three_passes, (code,))
    found = nki.simulate(kernel, target="trn1")(q, k, v, *options)
    assert close(found, softmax(q.T @ k) @ v.T, 1e-5 if code == 3 else 1e-2)


@pytest.mark.parametrize("rowwise", [False, True])
def test_stable_diffusion(rowwise: bool) -> None:
    q, k, v = normal(3, 256, 64)
    form = attention_sd.Form(
        ("vqk",), transposes_queries=True, fused=rowwise, narrow=rowwise, rowwise=rowwise
    )
    found = nki.simulate(attention_sd.sd_attention, target="trn1")(q, k, v, form)
    assert close(found, softmax(0.125 * q @ k.T) @ v, 2e-2)


def test_stable_diffusion_allocated() -> None:
    q, k, v = normal(3, 128, 1024)
    found = nki.simulate(attention_sd_allocated.sd_attention_allocated, target="trn1")(q, k, v.T.copy())
    assert close(found, (softmax(0.125 * q.T @ k) @ v.T).T, 1e-2)


def test_backward() -> None:
    q, k, v, dy = normal(4, 128, 512)
    scale = 128**-0.5
    scores = scale * q.T @ k
    scores[np.triu_indices(512, 1)] = -1e30
    weights = softmax(scores)
    peak = scores.max(-1)
    lse = (peak + np.log(np.exp(scores - peak[:, None]).sum(-1))).reshape(-1, 128).T.copy()
    slopes = dy.T @ v
    dscores = weights * (slopes - (slopes * weights).sum(-1, keepdims=True))
    expected = scale * k @ dscores.T, scale * q @ dscores, dy @ weights
    found = nki.simulate(attention_backward.flash_attention_backward, target="trn1")(
        q, k, v, v @ weights.T, dy, lse, scale
    )
    assert all(close(a, b, 1e-5) for a, b in zip(found, expected))


@pytest.mark.parametrize("splits", [False, True])
def test_grouped_queries(splits: bool) -> None:
    q, k, v = normal(4, 128, 2, 128), normal(1, 4, 128, 1, 128), normal(4, 128, 128)
    form = attention_gqa.Form(batch=2, divides_weights=not splits, splits=splits, from_psum=splits)
    found = nki.simulate(attention_gqa.gqa, target="trn2")(q, k, v, form)
    rows = q.transpose(2, 0, 1, 3).reshape(2, 512, 128)
    expected = softmax(rows @ k.reshape(512, 128).T / np.sqrt(128)) @ v.reshape(512, 128)
    assert close(found.reshape(2, 512, 128), expected, 1e-4)
