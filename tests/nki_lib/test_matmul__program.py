"""The programs of the matrix products: both ways to run them, their text, their checks, their predicted times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
from nki.target import get_target
from nki_lib.linear.matmul.fused import matmul_fused
from nki_lib.linear.matmul.kernel import matmul

RANDOM = np.random.default_rng(0)


def array(*shape: int, dtype: Any = "bfloat16") -> Any:
    return RANDOM.standard_normal(shape, np.float32).astype(dtype)


def scale(count: int) -> Any:
    return RANDOM.uniform(0.5, 2, count).astype(np.float32)


CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "plain": (matmul, (array(200, 150), array(150, 520), False, True)),
    "few rows": (matmul, (array(5, 700), array(530, 700), False, False)),
    "by DMA": (matmul, (array(520, 300), array(520, 300), False, False)),
    "fused": (
        matmul_fused,
        (array(130, 96), None, array(96, 40), None, array(40), False, True, "gelu", "float32"),
    ),
    "8-bit weight": (
        matmul_fused,
        (
            *(array(130, 300), None, array(520, 300, dtype="float8_e4m3fn"), scale(520), array(520)),
            *(False, False, "silu", "bfloat16"),
        ),
    ),
    "8-bit": (
        matmul_fused,
        (
            *(array(130, 300, dtype="float8_e5m2"), scale(130), array(300, 70, dtype="float8_e5m2")),
            *(scale(70), None, False, True, None, "bfloat16"),
        ),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_both_ways_and_text_give_the_same_bits(name: str, tmp_path: Path) -> None:
    kernel, arguments = CALLS[name]
    planned = kernel(*arguments)
    assert nki.simulate(kernel, eager=True)(*arguments).tobytes() == planned.tobytes()
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments)), encoding="utf-8")
    tensors = [a for a in arguments if isinstance(a, np.ndarray)]
    assert nki.load_ir(path)(*tensors).tobytes() == planned.tobytes()


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", CALLS)
def test_clean_under_every_check(name: str, target: str) -> None:
    kernel, arguments = CALLS[name]
    assert [str(d) for d in kernel.check(*arguments, target=target) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*arguments)
    assert sanitized.tobytes() == nki.simulate(kernel, target=target)(*arguments).tobytes()


def latency(kernel: Any, *arguments: Any, target: str = "trn2") -> float:
    return nki.profile(kernel, target=target)(*arguments).latency_us


@pytest.mark.slow
@pytest.mark.parametrize("b_leading", [True, False])
def test_a_large_product_is_bound_by_the_tensor_engine(
    b_leading: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4096^3 in bfloat16, both matrices as they lie in memory: 1.02 times what the multiplications alone take."""
    monkeypatch.setenv("NKI_CHECK", "0")
    square = np.zeros((4096, 4096), "bfloat16")
    bound = 4096**3 / (128 * 128) / get_target("trn2").tensor_clock_mhz
    assert latency(matmul, square, square, False, b_leading) <= 1.02 * bound


@pytest.mark.slow
def test_8_bit_factors_take_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_CHECK", "0")
    narrow = [np.zeros((2048, 2048), "float8_e5m2")] * 2
    bound = 2048**3 / (128 * 128) / get_target("trn2").tensor_clock_mhz
    arguments = (narrow[0], None, narrow[1], None, None, False, True, None, "bfloat16")
    assert latency(matmul_fused, *arguments) <= 0.58 * bound


@pytest.mark.slow
@pytest.mark.parametrize("b_leading", [True, False])
def test_few_rows_are_bound_by_loading_the_weight(b_leading: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_CHECK", "0")
    machine = get_target("trn2")
    a, b = np.zeros((16, 4096), "bfloat16"), np.zeros((4096, 4096), "bfloat16")
    bound = (2 * a.nbytes + b.nbytes) / (machine.dma_engines * machine.dma_engine_bytes_per_us)
    assert latency(matmul, a, b, False, b_leading) <= 1.35 * bound
