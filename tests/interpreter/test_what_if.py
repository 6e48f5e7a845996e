"""What-if machines, bounds by resource, both schedules, and where a kernel stands under the roofline."""

from __future__ import annotations

import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from interpreter.timing.what_if import KNOBS, changed
from nki import errors
from nki.cli.main import main
from nki.target import get_target

K, M, N, TILES = 128, 128, 512, 6


@nki.jit
def products(x: Any, w: Any) -> Any:
    """TILES products, each of a tile of its own, and their results back to HBM."""
    out = nl.ndarray((TILES, M, N), dtype=x.dtype, buffer=nl.shared_hbm)
    weights = nl.ndarray((K, M), dtype=w.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=weights, src=w)
    for i in range(TILES):
        tile = nl.ndarray((K, N), dtype=x.dtype, buffer=nl.sbuf)
        result = nl.ndarray((M, N), dtype=x.dtype, buffer=nl.sbuf)
        total = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
        nisa.dma_copy(dst=tile, src=x[i])
        nisa.nc_matmul(dst=total, stationary=weights, moving=tile)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[i], src=result)
    return out


def operands() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((TILES, K, N), ml_dtypes.bfloat16), np.zeros((K, M), ml_dtypes.bfloat16)


def profiled(**how: Any) -> Any:
    return nki.profile(products, target="trn2", **how)(*operands())


def test_bounds_take_one_resource_away() -> None:
    found = profiled()
    assert list(found.bounds) == list(KNOBS)
    for name, us in found.bounds.items():
        assert 0 < us <= found.latency_us
        assert us == profiled(what_if={name: math.inf}).latency_us
    assert found.bounds["dma_issue"] < found.latency_us
    without_dma = found.what_if(dma_bandwidth=math.inf, dma_latency=math.inf, dma_issue=math.inf)
    assert sum(without_dma.timeline.dma.busy_ps) == 0
    assert without_dma.latency_us < min(found.bounds.values())


@pytest.mark.parametrize("name", KNOBS)
def test_faster_is_never_slower(name: str) -> None:
    times = [profiled(what_if={name: factor}).latency_us for factor in (0.5, 1, 1.5, 2, 16, math.inf)]
    assert times == sorted(times, reverse=True)
    assert times[1] == profiled().latency_us


def test_twice_the_bandwidth_halves_the_time_on_the_dma_engines() -> None:
    once, twice = (sum(profiled(what_if={"dma_bandwidth": f}).timeline.dma.busy_ps) for f in (1, 2))
    assert twice == pytest.approx(once / 2, rel=0.01)


def test_the_target_is_left_alone() -> None:
    target = get_target("trn2")
    other = changed(target, {"tensor": 2})
    assert other.tensor_clock_mhz == 2 * target.tensor_clock_mhz == 2 * get_target("trn2").tensor_clock_mhz


@pytest.mark.parametrize(
    ("factors", "message"),
    [({"hbm": 2}, "no resource 'hbm'"), ({"tensor": 0}, "not a factor"), ({"tensor": "2"}, "not a factor")],
)
def test_wrong_factors_are_refused_before_anything_is_staged(factors: Any, message: str) -> None:
    with pytest.raises(errors.ArgumentError, match=message) as caught:
        nki.profile(products, target="trn2", what_if=factors)
    assert "dma_bandwidth" in str(caught.value) or "above 0" in str(caught.value)
    assert "test_what_if.py" in str(caught.value)


def test_both_schedules_are_told() -> None:
    found = profiled()
    assert list(found.schedules) == ["compiler", "program"]
    assert found.schedules["compiler"] == found.latency_us
    assert found.schedules["program"] == profiled(schedule="program").latency_us
    assert "as program:" in str(found)


def test_roofline_counts_operations_and_bytes() -> None:
    found = profiled()
    line = found.roofline
    assert line.flops == 2 * TILES * K * M * N
    assert line.hbm_bytes == 2 * (K * M + TILES * (K * N + M * N))
    assert line.intensity == line.flops / line.hbm_bytes
    seconds = found.latency_us * 1e-6
    assert line.mfu == pytest.approx(line.flops / (128 * 128 * 2 * 2.4e9 * seconds))
    assert line.mbu == pytest.approx(line.hbm_bytes / (3e12 / 4 * seconds))
    assert line.hfu == line.mfu and line.bound == "memory"


def test_transposes_are_no_useful_operations() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        turned = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.psum)
        out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=tile, src=x)
        nisa.nc_transpose(dst=turned, data=tile, engine=nisa.engine.tensor)
        nisa.tensor_copy(dst=tile, src=turned)
        nisa.dma_copy(dst=out, src=tile)
        return out

    line = nki.profile(kernel, target="trn2")(np.zeros((128, 128), ml_dtypes.bfloat16)).roofline
    assert line.flops == 0 and line.moving_flops == 2 * 128**3
    assert line.mfu == 0 < line.hfu


def test_everywhere_a_profile_is_read(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = profiled()
    record = found.to_json()
    assert record["bounds_us"] == dict(found.bounds) and record["schedules_us"] == dict(found.schedules)
    assert record["roofline"]["flops"] == found.roofline.flops
    page = tmp_path / "page.html"
    found.to_html(page)
    text = page.read_text(encoding="utf-8")
    assert "What if" in text and "MFU" in text and "MBU" in text
    for name, array in zip("xw", operands()):
        np.save(tmp_path / f"{name}.npy", array.astype(np.float32))
    command = ["profile", f"{__file__}:products", str(tmp_path / "x.npy"), str(tmp_path / "w.npy"), "--json"]
    assert main([*command, "--target", "trn2", "--what-if", "dma_issue=inf"]) == 0
    fast = json.loads(capsys.readouterr().out)
    assert main([*command, "--target", "trn2"]) == 0
    assert fast["latency_us"] < json.loads(capsys.readouterr().out)["latency_us"]
