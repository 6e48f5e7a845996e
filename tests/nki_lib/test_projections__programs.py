"""The programs of the projections: both ways to run them, their text, their checks, on every generation; their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki_lib.attention.output_projection.kernel import output_projection
from nki_lib.attention.qkv_projection.kernel import qkv_projection
from nki_lib.attention.rope.kernel import rope
from nki_lib.linear.matmul.kernel import matmul

RANDOM = np.random.default_rng(0)


def array(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> Any:
    return RANDOM.standard_normal(shape, np.float32).astype(dtype)


CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rope": (
        rope,
        (array(140, 3, 8), array(140, 4, dtype=np.float32), array(140, 4, dtype=np.float32), True),
    ),
    "matmul": (matmul, (array(130, 150), array(150, 520), False, True)),
    "qkv": (
        qkv_projection,
        (
            *(array(130, 140), array(130, 16), array(130, 16), array(80, 140), array(80), array(140)),
            *(1e-6, 16, 48, False),
        ),
    ),
    "output": (output_projection, (array(5, 40), array(5, 30), array(30, 40), array(30))),
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


def test_a_factor_that_leads_is_not_transposed() -> None:
    def transposes(a_leading: bool, b_leading: bool) -> int:
        program = matmul.ir(array(128, 128), array(128, 128), a_leading, b_leading)
        return sum(type(i).__name__ == "nc_transpose" for core in program.cores for i in core)

    assert [transposes(*flags) for flags in ((True, True), (True, False), (False, False))] == [0, 1, 2]


@pytest.mark.slow
def test_the_tensor_engine_bounds_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear layer of 1024 x 2048 x 1536 in bfloat16 on trn2: at most 1.35 times what the busiest engine needs."""
    monkeypatch.setenv("NKI_CHECK", "0")
    x, weight = (np.zeros((rows, 2048), ml_dtypes.bfloat16) for rows in (1024, 1536))
    profile = nki.profile(matmul, target="trn2")(x, weight, False, False)
    busiest = max(engine.busy_us for engine in profile.engines.values())
    assert profile.latency_us <= 1.35 * busiest
