"""dma_copy with one index for the whole window, and who makes the descriptors of dynamic addresses."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.isa.costs_dma import copy_transfer
from nki.target import get_target
from tests.isa.dynamic import column, everywhere, one
from tests.isa.tiles import load, sbuf, staged, store

BF16 = ml_dtypes.bfloat16
SKIP, ERROR = nisa.oob_mode.skip, nisa.oob_mode.error
X4 = ["float4_e2m1fn_x4", "float8_e4m3fn_x4", "float8_e5m2_x4"]


# ---- one index for the whole window -------------------------------------------------------------


@pytest.mark.parametrize("by", ["register", "tile"])
@pytest.mark.parametrize("mode", [ERROR, SKIP])
def test_rule_38_moved_windows(by, mode):
    """The pattern moves along the tensor's dimension, whatever its own steps; on both sides of a copy."""

    @nki.jit
    def kernel(x, out, n):
        index = load(n)
        if by == "register":
            index = nisa.register_alloc()
            nisa.register_load(index, n)
        tile = sbuf((2, 3), x.dtype)
        nisa.memset(dst=tile, value=-1.0)
        pattern = [[5, 2], [1, 3]]
        nisa.dma_copy(
            dst=tile, src=x.ap(pattern, offset=2, scalar_offset=index, indirect_dim=0), oob_mode=mode
        )
        nisa.dma_copy(dst=out.ap([[3, 2], [1, 3]], scalar_offset=index), src=tile, oob_mode=mode)
        return out

    x = np.arange(40, dtype=np.float32).reshape(8, 5)
    for n in (0, 3, 6):
        expected = np.zeros((8, 3), np.float32)
        for i in range(2):
            for j in range(3):
                expected[n + i, j] = x.reshape(-1)[2 + n * 5 + i * 5 + j]
        assert everywhere(kernel, x, np.zeros((8, 3), np.float32), one(n)).tolist() == expected.tolist()
    for n in (7, -1):
        if mode is SKIP:
            assert not everywhere(kernel, x, np.zeros((8, 3), np.float32), one(n)).any()
        else:
            with pytest.raises(errors.DynamicBoundsError, match=f"index {n & 0xFFFFFFFF}"):
                nki.simulate(kernel)(x, np.zeros((8, 3), np.float32), one(n))


def test_windows_in_sbuf_move_along_free_dimensions():
    @nki.jit
    def kernel(x, n):
        tile, index = load(x), load(n)
        part = sbuf((4, 3), x.dtype)
        nisa.dma_copy(dst=part, src=tile.ap([[8, 4], [2, 3]], scalar_offset=index, indirect_dim=1))
        nisa.dma_copy(dst=tile[:, nl.ds(index, 3)], src=part)
        return store(part), store(tile)

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    for n in (0, 1, 3):
        part, tile = everywhere(kernel, x, one(n))
        assert part.tolist() == x[:, n : n + 5 : 2].tolist()
        expected = x.copy()
        expected[:, n : n + 3] = part
        assert tile.tolist() == expected.tolist()
    with pytest.raises(errors.DynamicBoundsError, match=r"0\.\.3"):
        nki.simulate(kernel)(x, one(4))


# ---- descriptors --------------------------------------------------------------------------------


def moving(options):
    @nki.jit
    def kernel(x, n, rows):
        tile, other = sbuf((1, x.shape[1]), x.dtype), sbuf((2, x.shape[1]), x.dtype)
        nisa.dma_copy(dst=tile, src=x[load(n), :], **options)
        nisa.dma_copy(dst=other, src=x.vector_select(0, load(rows)))
        return store(tile), store(other)

    return kernel


@pytest.mark.parametrize(
    ("target", "options", "mode", "engine"),
    [
        ("trn1", {}, "swdge", "gpsimd"),
        ("trn2", {}, "swdge", "gpsimd"),
        ("trn3", {"dge_mode": nisa.dge_mode.hwdge}, "hwdge", "sync"),
        ("trn2", {"dge_mode": nisa.dge_mode.hwdge, "engine": nisa.engine.scalar}, "hwdge", "scalar"),
    ],
)
def test_rule_97_modes(target, options, mode, engine):
    arrays = (np.zeros((4, 8), np.float32), one(0), column(1, 2))
    moved, gathered = (
        i for i in staged(moving(options), "dma_copy", *arrays, target=target) if i.src.dynamic is not None
    )
    assert (moved.dge_mode.name, moved.engine.name) == (mode, engine)
    assert (gathered.dge_mode.name, gathered.engine.name) == ("swdge", "gpsimd")


def test_rule_97_static_rings_cannot_move():
    found = moving({"dge_mode": nisa.dge_mode.none}).check(
        np.zeros((4, 8), np.float32), one(0), column(1, 2), target="trn2"
    )
    assert any("dge_mode.none" in d.message and d.severity == "warning" for d in found)


@pytest.mark.parametrize("mode", ["none", "hwdge"])
def test_rule_97_gathers_need_software(mode):
    @nki.jit
    def kernel(x, rows):
        tile = sbuf((2, 8))
        nisa.dma_copy(dst=tile, src=x.vector_select(0, load(rows)), dge_mode=nisa.dge_mode[mode])
        return store(tile)

    with pytest.raises(errors.RuleError, match="unknown or swdge"):
        nki.simulate(kernel, target="trn2")(np.zeros((4, 8), np.float32), column(1, 2))


def test_one_index_per_row():
    @nki.jit
    def kernel(x, rows):
        tile = sbuf((2, 8))
        nisa.dma_copy(dst=tile, src=x.ap([[8, 2], [1, 8]], vector_offset=load(rows)))
        return store(tile)

    with pytest.raises(errors.OperandShapeError, match="2 rows"):
        nki.simulate(kernel)(np.zeros((4, 8), np.float32), column(1, 2, 3))


def test_every_row_of_a_gather_has_descriptors_of_its_own():
    @nki.jit
    def kernel(x, rows):
        out = nl.ndarray((64, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x.vector_select(0, load(rows)))
        return out

    arrays = (np.zeros((100, 8), np.float32), column(*range(64)))
    node = next(i for i in staged(kernel, "dma_copy", *arrays) if i.src.dynamic is not None)
    transfer = copy_transfer(get_target("trn2"), node.dst, node.src, node.dge_mode)
    assert (transfer.descriptors, transfer.descriptor_bytes) == (64, 32)
