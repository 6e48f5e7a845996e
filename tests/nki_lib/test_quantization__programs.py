"""The programs of `quantize`, `dequantize`, `matmul_mx`: ways to run them, their text, their checks; their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki_lib.linear.matmul_mx.kernel import matmul_mx
from nki_lib.quantization.dequantize.kernel import dequantize
from nki_lib.quantization.quantize.kernel import quantize_blocks, quantize_vectors

RANDOM = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16


def array(*shape: int, dtype: Any = BF16) -> Any:
    return RANDOM.standard_normal(shape, np.float32).astype(dtype)


def codes(*shape: int, low: int = 0, high: int = 120) -> Any:
    """Bytes that are no NaN in any format."""
    return RANDOM.integers(low, high, shape, np.uint8)


def scales(*shape: int) -> Any:
    return codes(*shape, low=120, high=134)


FLOAT8, NIBBLES = "mxfp8_e4m3", "mxfp4_e2m1"
CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "blocks": (quantize_blocks, (array(130, 2080), "mxfp8_e5m2")),
    "nibbles": (quantize_blocks, (array(130, 96, dtype=np.float32), NIBBLES)),
    "vectors": (quantize_vectors, (array(130, 2100), "float8_e4m3fn")),
    "back": (dequantize, (codes(130, 96), scales(130, 3), FLOAT8, "bfloat16")),
    "nibbles back": (dequantize, (codes(40, 48), scales(40, 3), NIBBLES, "float32")),
    "vectors back": (
        dequantize,
        (codes(40, 50), array(40, 1, dtype=np.float32), "float8_e5m2", "float16"),
    ),
    "rounded rows": (
        matmul_mx,
        (array(5, 608), None, codes(70, 608), scales(70, 19), array(70), FLOAT8, FLOAT8, False, "bfloat16"),
    ),
    "leading nibbles": (
        matmul_mx,
        (
            *(array(130, 160, dtype=np.float32), None, codes(80, 515), scales(5, 515), None),
            *(FLOAT8, NIBBLES, True, "float32"),
        ),
    ),
    "both with scales": (
        matmul_mx,
        (
            *(codes(3, 96), scales(3, 3), codes(33, 48), scales(33, 3), array(33, dtype=np.float32)),
            *("mxfp8_e5m2", NIBBLES, False, "float32"),
        ),
    ),
}


def run(kernel: Any, target: str, arguments: tuple[Any, ...], **options: Any) -> bytes:
    """All results as bytes."""
    results = nki.simulate(kernel, target=target, **options)(*arguments)
    return b"".join(r.tobytes() for r in (results if isinstance(results, tuple) else (results,)))


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("name", CALLS)
def test_both_ways_and_text_give_the_same_bits(name: str, target: str, tmp_path: Path) -> None:
    kernel, arguments = CALLS[name]
    planned = run(kernel, target, arguments)
    assert run(kernel, target, arguments, eager=True) == planned
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments, target=target)), encoding="utf-8")
    tensors = [a for a in arguments if isinstance(a, np.ndarray)]
    results = nki.load_ir(path)(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    assert b"".join(r.tobytes() for r in results) == planned


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", CALLS)
def test_clean_under_every_check(name: str, target: str) -> None:
    kernel, arguments = CALLS[name]
    assert [str(d) for d in kernel.check(*arguments, target=target) if d.severity != "note"] == []
    assert run(kernel, target, arguments, sanitize=True) == run(kernel, target, arguments)


def test_the_tensor_engine_multiplies_four_lanes_on_trn3_only() -> None:
    def kinds(target: str) -> set[str]:
        program = matmul_mx.ir(*CALLS["rounded rows"][1], target=target)
        return {type(i).__name__ for core in program.cores for i in core}

    assert {"nc_matmul_mx", "quantize_mx"} <= kinds("trn3") and "nc_matmul" not in kinds("trn3")
    assert "nc_matmul" in kinds("trn2") and not {"nc_matmul_mx", "quantize_mx"} & kinds("trn2")


@pytest.mark.slow
@pytest.mark.parametrize("format", [FLOAT8, NIBBLES])
def test_the_tensor_engine_bounds_the_product(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """2048 rows, 2048 x 2048 on trn3: at most 1.6 times what the Tensor engine needs, a third of that in bfloat16."""
    monkeypatch.setenv("NKI_CHECK", "0")
    a, packed = np.zeros((2048, 2048), BF16), 2 if format == NIBBLES else 1
    b, scale = np.zeros((2048, 2048 // packed), np.uint8), np.zeros((2048, 64), np.uint8)
    arguments = (a, None, b, scale, None, FLOAT8, format, False, "bfloat16")
    profile = nki.profile(matmul_mx, target="trn3")(*arguments)
    assert profile.latency_us <= 1.6 * profile.engines["tensor"].busy_us
    in_bfloat16 = 16 * 16 * 4 * 512 / 2400
    assert profile.latency_us <= in_bfloat16 / 2


@pytest.mark.slow
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_engines_bound_the_quantisation(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_CHECK", "0")
    for kernel, format in (
        (quantize_blocks, FLOAT8),
        (quantize_blocks, NIBBLES),
        (quantize_vectors, "float8_e5m2"),
    ):
        profile = nki.profile(kernel, target=target)(np.zeros((1024, 2048), BF16), format)
        assert profile.latency_us <= 1.5 * max(engine.busy_us for engine in profile.engines.values())
