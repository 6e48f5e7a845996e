"""The programs of softmax, cumsum, topk and the router: both ways to run them, their text, their checks; their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki_lib.moe.router_topk.kernel import router_topk
from nki_lib.reduction.cumsum.kernel import cumsum
from nki_lib.reduction.softmax.backward import softmax_backward
from nki_lib.reduction.softmax.kernel import softmax
from nki_lib.reduction.topk.kernel import topk
from tools.library_pages import transfer

RANDOM = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16


def array(*shape: int, dtype: Any = np.float32) -> Any:
    return RANDOM.standard_normal(shape, np.float32).astype(dtype)


def whole(*shape: int) -> Any:
    return RANDOM.integers(-(2**31), 2**31, shape).astype(np.int32)


CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (softmax, (array(300, 70, dtype=BF16), False, "float32")),
    "softmax, columns": (softmax, (array(150, 70, dtype=BF16), True, None)),
    "softmax, wide": (softmax, (array(3, 9000), False, None)),
    "softmax, too wide to keep": (softmax, (array(2, 33000, dtype=BF16), False, None)),
    "softmax, wide columns": (softmax, (array(8300, 3), True, None)),
    "gradient": (softmax_backward, (array(140, 70), array(140, 70), False, "bfloat16")),
    "gradient, wide columns": (softmax_backward, (array(4200, 3), array(4200, 3), True, None)),
    "cumsum": (cumsum, (array(300, 70, dtype=BF16), False, False, None)),
    "cumsum, columns": (cumsum, (array(150, 70), True, True, "bfloat16")),
    "cumsum, wide": (cumsum, (array(3, 9000), False, True, None)),
    "cumsum, short": (cumsum, (array(3000, 4, dtype=BF16), False, True, None)),
    "cumsum, integers": (cumsum, (whole(140, 3000), False, True, None)),
    "topk": (topk, (array(300, 70, dtype=BF16), 20, True)),
    "topk, segments": (topk, (array(3, 16384), 9, False)),
    "topk, narrow": (topk, (array(3, 5), 4, True)),
    "router": (router_topk, (array(300, 32), None, None, 4, "softmax", False, 1, 1, 1.0)),
    "router with losses": (
        router_topk,
        (array(300, 32, dtype=BF16), None, np.ones(300, np.float32), 9, "topk_softmax", True, 1, 1, 1.0),
    ),
    "router with groups": (
        router_topk,
        (array(140, 64), array(64), np.ones(140, np.float32), 6, "sigmoid", True, 4, 2, 2.5),
    ),
    "router with small groups": (
        router_topk,
        (array(3, 6), array(6), None, 2, "sigmoid", False, 2, 1, 1.0),
    ),
}


def results(values: Any) -> list[bytes]:
    return [each.tobytes() for each in (values if isinstance(values, tuple) else (values,))]


@pytest.mark.parametrize("name", CALLS)
def test_both_ways_and_text_give_the_same_bits(name: str, tmp_path: Path) -> None:
    kernel, arguments = CALLS[name]
    planned = results(kernel(*arguments))
    assert results(nki.simulate(kernel, eager=True)(*arguments)) == planned
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments)), encoding="utf-8")
    tensors = [a for a in arguments if isinstance(a, np.ndarray)]
    assert results(nki.load_ir(path)(*tensors)) == planned


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", CALLS)
def test_clean_under_every_check(name: str, target: str) -> None:
    kernel, arguments = CALLS[name]
    assert [str(d) for d in kernel.check(*arguments, target=target) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*arguments)
    assert results(sanitized) == results(nki.simulate(kernel, target=target)(*arguments))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [BF16, np.float32])
@pytest.mark.parametrize("shape", [(4096, 4096), (8192, 2048)])
def test_softmax_takes_little_more_than_its_transfers(
    shape: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 1.3 times what the DMA engines need to move arguments and results once, on trn2."""
    monkeypatch.setenv("NKI_CHECK", "0")
    x = np.zeros(shape, dtype)
    assert nki.profile(softmax, target="trn2")(x, False, None).latency_us <= 1.3 * transfer(
        2 * x.nbytes, "trn2"
    )
    both = nki.profile(softmax_backward, target="trn2")(x, x, False, None)
    assert both.latency_us <= 1.3 * transfer(3 * x.nbytes, "trn2")
    sums = nki.profile(cumsum, target="trn2")(x, False, False, None)
    assert sums.latency_us <= 1.3 * transfer(2 * x.nbytes, "trn2")
