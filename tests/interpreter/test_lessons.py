"""The lessons of the tutorials: what made a kernel faster on the hardware makes it faster here, for the same reason.

Each test names the section and the reason that it gives. kernel-optimization.rst measures on trn2, all others on trn1.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.kernels import tutorial_mamba, tutorial_matmul
from benchmarks.accuracy.kernels.samples_steps import bank, copied, load, zeros
from benchmarks.accuracy.kernels.tutorial_matmul import store_sums, tile_of
from interpreter.profile import Profile
from interpreter.timing.timeline import DMA_BANDWIDTH, DMA_LATENCY, DMA_QUEUE, EXECUTE, ISSUE
from nki.target import get_target
from tests.interpreter import lessons
from tests.interpreter.lessons import TILE, WIDTH, output, pieces

NO_DMA = {"dma_bandwidth": np.inf, "dma_latency": np.inf, "dma_issue": np.inf}


def wide(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def half(*shape: int) -> np.ndarray:
    return np.zeros(shape, ml_dtypes.bfloat16)


def timed(kernel: Any, *arguments: Any, target: str = "trn1") -> Profile:
    return nki.profile(kernel, target=target)(*arguments)


def faster(kernel: Any, *operands: Any, slow: Any = (False,), fast: Any = (True,)) -> tuple[Profile, Profile]:
    """Profiles of two variants on trn1, of which the second must be the faster."""
    before, after = timed(kernel, *operands, *slow), timed(kernel, *operands, *fast)
    assert after.latency_us < before.latency_us
    return before, after


def dma_wait(profile: Profile, engine: str) -> float:
    """How long an engine waits for data to be moved."""
    waits = profile.engines[engine].waits
    return sum(waits.get(reason, 0) for reason in (ISSUE, DMA_QUEUE, DMA_LATENCY, DMA_BANDWIDTH))


def busy(profile: Profile, engine: str) -> float:
    return profile.engines[engine].busy_us


def critical(profile: Profile, reason: str) -> float:
    return sum(step.us for step in profile.critical_path if step.reason == reason)


# ---- kernel-optimization.rst, matrix_multiplication.rst -------------------------------------------------------------


def test_loads_are_hoisted() -> None:
    """kernel-optimization.rst, from v2 to v3 (39.9 to 28.2 ms): loads right before each product keep TensorE waiting,
    and the same tiles are loaded again; TensorE's activity rises from 87 to 99.85 %, both keep the DMA engines busy."""
    operands = wide(1024, 2048), wide(1024, 2048)
    kernels = tutorial_matmul.loads_inside, tutorial_matmul.loads_hoisted
    before, after = (timed(kernel, *operands, target="trn2") for kernel in kernels)
    assert after.latency_us < 0.8 * before.latency_us
    assert after.dma.bytes < before.dma.bytes and after.dma.transfers < before.dma.transfers
    assert dma_wait(after, "tensor") < 0.25 * dma_wait(before, "tensor")
    assert before.engines["tensor"].utilisation < 0.8 < 0.85 < after.engines["tensor"].utilisation
    assert all(profile.dma.active_us > 0.9 * profile.latency_us for profile in (before, after))


def test_blocking_the_contraction_relieves_the_dma() -> None:
    """kernel-optimization.rst, from v3 to v5: no longer memory-bound but compute-bound, DMA activity falls from 99.7 to
    21.5 %. The published times are equal (28.2 and 28.3 ms, TensorE 99.5 % active), and so are these."""
    operands = wide(1024, 2048), wide(1024, 2048)
    hoisted = timed(tutorial_matmul.loads_hoisted, *operands, target="trn2")
    blocked = timed(tutorial_matmul.blocked_everywhere, *operands, 0, target="trn2")
    assert blocked.latency_us == pytest.approx(hoisted.latency_us, rel=0.05)
    assert blocked.engines["dma"].utilisation < 0.3 < 0.9 < hoisted.engines["dma"].utilisation
    assert blocked.engines["tensor"].utilisation > 0.85
    assert blocked.bounds["tensor"] < 0.5 * blocked.latency_us < 0.6 * blocked.what_if(**NO_DMA).latency_us
    assert hoisted.bounds["tensor"] > 0.9 * hoisted.latency_us


@nki.jit
def free_blocked(lhs_t: Any, rhs: Any, size: int) -> Any:
    """Optimisation 2 of the matmul tutorial: `size` x `size` tiles of the result from columns of tiles of all K."""
    (depth, rows), columns = lhs_t.shape, rhs.shape[1]
    steps, out = range(depth // TILE), output(rows, columns, dtype=lhs_t.dtype)
    for m in range(0, rows // TILE, size):
        left = [[load(tile_of(lhs_t, k, m + i, TILE)) for k in steps] for i in range(size)]
        for n in range(0, columns // WIDTH, size):
            right = [[load(tile_of(rhs, k, n + j, WIDTH)) for k in steps] for j in range(size)]
            for i in range(size):
                for j in range(size):
                    sums = bank(TILE, WIDTH)
                    for k in steps:
                        nisa.nc_matmul(dst=sums, stationary=left[i][k], moving=right[j][k])
                    store_sums(tile_of(out, m + i, n + j, WIDTH), sums)
    return out


@nki.jit
def all_blocked(lhs_t: Any, rhs: Any, height: int, width: int, depth: int, coalesced: bool) -> Any:
    """Optimisation 3: blocks of height x width x depth tiles; their rows are stored as they lie, or copied first."""
    out = output(lhs_t.shape[1], rhs.shape[1], dtype=lhs_t.dtype)
    for n in range(rhs.shape[1] // (width * WIDTH)):
        totals = [zeros((TILE, width * WIDTH), out.dtype) for _ in range(out.shape[0] // TILE)]
        for k in range(0, rhs.shape[0] // TILE, depth):
            right = [load(tile_of(rhs, k + i, n, width * WIDTH)) for i in range(depth)]
            for m in range(len(totals) // height):
                left = [load(tile_of(lhs_t, k + i, m, height * TILE)) for i in range(depth)]
                for part in pieces(width * WIDTH, WIDTH):
                    for at, total in zip(pieces(height * TILE, TILE), totals[m * height :]):
                        sums = bank(TILE, WIDTH)
                        for a, b in zip(left, right):
                            nisa.nc_matmul(dst=sums, stationary=a[:, at], moving=b[:, part])
                        nisa.tensor_tensor(total[:, part], total[:, part], sums, op=nl.add)
        for m, total in enumerate(totals):
            nisa.dma_copy(dst=tile_of(out, m, n, width * WIDTH), src=copied(total) if coalesced else total)
    return out


def test_arithmetic_intensity_makes_a_matmul_fast() -> None:
    """matrix_multiplication.rst, optimisations 1 to 3: about 100 operations per byte of HBM in the tiled kernel, which
    is memory-bound; hoisted loads and larger blocks raise it over the 222 that saturate TensorE in bfloat16. Tiles of
    the result that lie side by side need no copies on VectorE before they are stored with one DMA."""
    operands, blocks = (half(1024, 1024), half(1024, 2048)), (8, 2, 4)
    steps = [timed(tutorial_matmul.loads_inside, *operands), timed(tutorial_matmul.loads_hoisted, *operands)]
    steps.append(timed(free_blocked, *operands, 2))
    steps += [timed(all_blocked, *operands, *blocks, coalesced) for coalesced in (True, False)]
    times, intensities = [p.latency_us for p in steps], [p.roofline.intensity for p in steps]
    assert times == sorted(times, reverse=True) and len(set(times)) == len(times)
    assert intensities == sorted(intensities)
    assert intensities[0] == pytest.approx(102, rel=0.1)
    assert steps[0].roofline.ridge == pytest.approx(222, rel=0.01)
    assert [p.roofline.bound for p in steps] == ["memory"] * 3 + ["compute"] * 2
    waits = [dma_wait(p, "tensor") for p in steps[:-1]]
    assert waits == sorted(waits, reverse=True) and waits[-1] < 0.1 * waits[0]
    assert steps[-1].engines["tensor"].utilisation > 3 * steps[0].engines["tensor"].utilisation
    copying, direct = (p.engines["vector"].instructions for p in steps[-2:])
    assert copying - direct == 1024 // TILE * 2048 // (2 * WIDTH)


# ---- fused_mamba.rst ------------------------------------------------------------------------------------------------


def test_mamba_layout_and_folding() -> None:
    """fused_mamba.rst, steps 1 and 2: with seq_len on the partitions A takes a TensorE instruction to be spread, and
    tensor_tensor is 2x slower than tensor_scalar in float32. With channels there the product even folds into the
    exponential's instruction at no additional cost."""
    states, length = 16, 512
    spread = timed(lessons.decays, wide(128, length), wide(states, length), "spread")
    operands = wide(128, length), wide(128, states)
    separate, folded = faster(lessons.decays, *operands, slow=("separate",), fast=("folded",))
    assert separate.latency_us < spread.latency_us
    assert spread.engines["tensor"].instructions == states and separate.engines["tensor"].instructions == 0
    assert busy(spread, "vector") > 1.4 * busy(separate, "vector")
    assert separate.engines["vector"].instructions == folded.engines["vector"].instructions + states
    assert busy(folded, "scalar") == pytest.approx(busy(separate, "scalar"))


def test_mamba_sequences_are_tiled() -> None:
    """fused_mamba.rst, from mamba_v2 to mamba_v3 at a length of 8192 (53.3 to 27.8 ms): tiles of the whole sequence do
    not fit, so intermediates are spilled, and VectorE waits for them to be reloaded."""
    length, needed = 8192, ("delta", "u", "sums", "exp", "delta * u", "b", "delta * u * b")
    assert len(needed) * length * 4 > get_target("trn1").sbuf_fmax_bytes
    operands = wide(128, length), wide(128, length), wide(128, 4), wide(4, length), wide(4, length)
    whole = timed(lessons.mamba_whole, *operands)
    tiled = timed(tutorial_mamba.mamba_v3, *operands, WIDTH)
    assert tiled.latency_us < 0.8 * whole.latency_us
    saved_and_reloaded = 1 + 4  # once, and for each of the states
    assert whole.dma.bytes - tiled.dma.bytes == saved_and_reloaded * 128 * length * 4
    assert dma_wait(whole, "vector") > 2 * dma_wait(tiled, "vector")
    before, after = (p.latency_us - p.what_if(**NO_DMA).latency_us for p in (whole, tiled))
    assert before > 2 * after


# ---- nki_perf_guide.rst ---------------------------------------------------------------------------------------------


def test_opt1_kept_inputs() -> None:
    """Opt #1: an input that stays in SBUF is not reloaded, so compute engines idle less for data movement."""
    before, after = faster(lessons.row_folds, wide(8, 128, 2048))
    assert before.dma.bytes - after.dma.bytes == 2 * 8 * 128 * 2048 * 4
    assert dma_wait(after, "vector") < 0.2 * dma_wait(before, "vector")
    assert before.bounds["dma_bandwidth"] < 0.6 * before.bounds["vector"]  # bound by memory
    assert after.bounds["vector"] < 0.8 * after.bounds["dma_bandwidth"]  # bound by computing


def test_opt2_fused_operators() -> None:
    """Opt #2: fused operators do not spill their intermediate tiles, here half of the traffic."""
    before, after = faster(lessons.squares_of_exp, wide(8, 128, 2048))
    assert before.dma.bytes == 2 * after.dma.bytes
    assert after.latency_us < 0.6 * before.latency_us
    assert after.bounds["dma_bandwidth"] == pytest.approx(before.bounds["dma_bandwidth"], rel=0.1)


def test_opt3_engines_overlap() -> None:
    """Opt #3: with the tensor in slices VectorE starts when ScalarE has done the first of them, not the whole."""
    before, after = faster(lessons.exp_plus_one, wide(128, 4096), slow=(4096, 4096), fast=(4096, 512))
    assert busy(after, "scalar") == pytest.approx(busy(before, "scalar"))
    hidden = 7 / 8 * busy(before, "scalar")
    assert before.latency_us - after.latency_us == pytest.approx(hidden, rel=0.1)
    assert before.engines["vector"].waits["data"] - after.engines["vector"].waits["data"] > 0.9 * hidden


def test_opt4_loading_overlaps_with_computing() -> None:
    """Opt #4: with the load in slices the engines work while the next slices move; DMA hides the computation."""
    before, after = faster(lessons.exp_plus_one, wide(128, 4096), slow=(4096, 512), fast=(512, 512))
    assert dma_wait(after, "scalar") < 0.7 * dma_wait(before, "scalar")
    assert critical(after, EXECUTE) < 0.4 * critical(before, EXECUTE)
    assert after.bounds["vector"] > 0.9 * after.latency_us


def test_opt5a_free_sizes() -> None:
    """Opt #5a: the static overhead of ~100 cycles dominates small tiles; too large ones work against Opt #3."""
    small, right = faster(lessons.exp_plus_one, wide(128, 4096), slow=(4096, 16), fast=(4096, 512))
    faster(lessons.exp_plus_one, wide(128, 4096), slow=(4096, 4096), fast=(4096, 512))
    assert busy(small, "vector") > 3 * busy(right, "vector")
    assert busy(small, "scalar") > 3 * busy(right, "scalar")


def test_opt5a_scans() -> None:
    """Opt #5a and step 4 of fused_mamba.rst: instructions on one element, each of which needs the result of the one
    before; one with two operators instead of two gives 2x, tensor_tensor_scan keeps the states in the engine."""
    operands, steps = (wide(128, 256), wide(128, 256)), 255
    two, one = faster(lessons.scan, *operands, slow=("two",), fast=("one",))
    _, whole = faster(lessons.scan, *operands, slow=("one",), fast=("all",))
    assert two.latency_us == pytest.approx(2 * one.latency_us, rel=0.1)
    assert (
        one.latency_us / steps > 0.15 and whole.latency_us < 0.15 * one.latency_us
    )  # 189 ns a step in figure 16
    assert critical(one, EXECUTE) + critical(one, "semaphore") > 0.8 * one.latency_us
    assert [p.engines["vector"].instructions for p in (two, one, whole)] == [2 * steps + 1, steps + 1, 1]


def test_opt5b_partitions() -> None:
    """Opt #5b: 64 partitions take an engine as long as 128; two products in one PSUM tile are reduced 2x faster."""
    before, after = faster(lessons.sums_of_products, half(128, 16, 64), half(128, 512))
    assert busy(before, "vector") == pytest.approx(2 * busy(after, "vector"))
    assert busy(before, "tensor") == pytest.approx(busy(after, "tensor"))


def test_opt6_combined_instructions() -> None:
    """Opt #6: multiply, add and exp in one pipelined ScalarE instruction, 3x faster than in three."""
    before, after = faster(lessons.exp_of_line, wide(8, 128, 512), wide(128, 1), wide(128, 1))
    assert busy(before, "scalar") == pytest.approx(3 * busy(after, "scalar"))
    assert before.bounds["dma_bandwidth"] - after.bounds["dma_bandwidth"] > 0.8 * 2 * busy(after, "scalar")


def test_opt7_fast_weight_load() -> None:
    """Opt #7: moving the short tensor issues a product every 64 cycles (MM_INIT_LATENCY; weights load in 32), moving
    the long one every 128."""
    terms = 64
    before, after = faster(lessons.vector_by_matrix, half(128, terms), half(128, terms, 128))
    assert before.cycles["tensor"] == pytest.approx(128 * terms, rel=0.02)
    assert after.cycles["tensor"] == pytest.approx(64 * terms, rel=0.02)
    assert before.latency_us - after.latency_us > 0.8 * (busy(before, "tensor") - busy(after, "tensor"))


@pytest.mark.parametrize(
    ("kernel", "operands"),
    [
        (lessons.layer, (half(128, 512), half(128, 16, 128))),
        (lessons.layer_statistics, (wide(128, 1024), wide(128, 512))),
        (lessons.normalized_layers, (half(128, 1024), half(128, 512), half(128, 4, 128))),
    ],
)
def test_opt8_transposes(kernel: Any, operands: Any) -> None:
    """Opt #8: TensorE does only useful work if inputs have the layout that the product needs, and if producer and
    consumer agree: moving and stationary swapped before LayerNorm, squares added up with a product for RMSNorm."""
    before, after = faster(kernel, *operands)
    assert before.roofline.moving_flops > 0 == after.roofline.moving_flops
    assert after.engines["tensor"].instructions < 0.6 * before.engines["tensor"].instructions
    assert busy(after, "vector") < 0.7 * busy(before, "vector")


@pytest.mark.parametrize("window", [(128, 64), (16, 1024)])
def test_opt9_large_transfers(window: tuple[int, int]) -> None:
    """Opt #9: few bytes a transfer leave the DMA engines busy with overhead; 128 x 4 KiB use all 16, 32 KiB each."""
    before, after = faster(lessons.copy_in_pieces, wide(512, 1024), slow=window, fast=(128, 1024))
    assert before.dma.bytes == after.dma.bytes and after.dma.bytes / after.dma.transfers / 16 == 32 * 1024
    assert before.dma.bytes / before.dma.transfers < 128 * 1024
    assert before.engines["dma"].utilisation < 0.6 < 0.7 < after.engines["dma"].utilisation


def test_opt10_dma_transposes() -> None:
    """Opt #10: a DMA that transposes has much less bandwidth than a load; an otherwise idle TensorE does it instead."""
    before, after = faster(lessons.transposed, half(2048, 128))
    assert before.dma.bytes == after.dma.bytes
    assert busy(before, "dma") > 4 * busy(after, "dma")
    assert before.bounds["dma_bandwidth"] < 0.3 * before.latency_us
    assert before.engines["tensor"].instructions == 0 < after.engines["tensor"].utilisation < 0.2
