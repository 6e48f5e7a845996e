"""The values of the re-created kernels of nki-samples, CS 149 and the Mamba traces at small sizes, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
from benchmarks.accuracy.kernels import conv, conv1d, mamba_traces, samples_rmsnorm_qkv, samples_vision


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    ("kernel", "target", "length", "options"),
    [
        (mamba_traces.states_outside, "trn1", 520, ()),
        (mamba_traces.channels_outside, "trn1", 40, ()),
        (mamba_traces.chunks_in_psum, "trn1", 512, (True,)),
        (mamba_traces.sequence_tiles, "trn2", 64, (32,)),
        (mamba_traces.shared_rows, "trn2", 64, (32,)),
    ],
)
def test_mamba(kernel: Any, target: str, length: int, options: tuple[Any, ...]) -> None:
    delta, u, a, b, c = (
        _random(*shape) for shape in ((256, length),) * 2 + ((256, 2), (2, length), (2, length))
    )
    delta, a = np.abs(delta), -np.abs(a)
    state, expected = np.zeros((256, 2)), np.zeros((256, length))
    for i in range(length):
        state = np.exp(a * delta[:, i, None]) * state + (delta[:, i] * u[:, i])[:, None] * b[:, i]
        expected[:, i] = state @ c[:, i]
    found = nki.simulate(kernel, target=target)(delta, u, a, b, c, *options)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kernel", "target"), [(conv.conv_by_rows, "trn2"), (conv.conv_by_strips, "trn1")])
def test_convolution(kernel: Any, target: str) -> None:
    x, w, bias = _random(1, 128, 6, 8), _random(128, 128, 3, 3) / 50, _random(128)
    sums = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    sums = np.tensordot(w, sums, ((1, 2, 3), (0, 3, 4)))
    expected = sums.reshape(128, 2, 2, 3, 2).max(axis=(2, 4)) + bias[:, None, None]
    halves = (tensor.astype(np.float16) for tensor in (x, w, bias))
    found = nki.simulate(kernel, target=target)(*halves, 2)[0]
    np.testing.assert_allclose(found.astype(np.float32), expected, atol=0.02)


def test_depthwise_convolution() -> None:
    x, taps = _random(1, 128, 9), _random(128, 3)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    expected = sum(padded[:, :, i : i + 9] * taps[:, i, None] for i in range(3))
    for kernel in (conv1d.conv1d, conv1d.conv1d_filter_in_psum):
        np.testing.assert_allclose(nki.simulate(kernel, target="trn1")(x, taps, 1), expected, atol=1e-5)


def test_average_pooling() -> None:
    x = _random(1, 130, 7, 5)
    found = nki.simulate(samples_vision.adaptive_average, target="trn1")(x, 3)
    rows, columns = samples_vision.windows(7, 3), samples_vision.windows(5, 3)
    expected = [[x[0, :, i, j].mean(axis=(1, 2)) for j in columns] for i in rows]
    np.testing.assert_allclose(found, np.moveaxis(expected, 2, 0), atol=1e-6)


def test_rms_norm_qkv() -> None:
    hidden, weights = _random(1, 256, 512), _random(512, 384) / 32
    rows = hidden[0] / np.sqrt(np.mean(hidden[0] ** 2, axis=1, keepdims=True) + 1e-6)
    halves = (tensor.astype(np.float16) for tensor in (hidden, weights, np.eye(128)))
    found = nki.simulate(samples_rmsnorm_qkv.rms_norm_qkv, target="trn1")(*halves, 1e-6)
    np.testing.assert_allclose(found.astype(np.float32), rows @ weights, atol=0.01)
