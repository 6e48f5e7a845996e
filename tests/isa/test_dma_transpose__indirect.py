"""dma_transpose of rows that an index tensor names: values against loops, rows outside, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.dynamic import everywhere
from tests.isa.tiles import load, sbuf, staged, store

BF16 = ml_dtypes.bfloat16


def kernel_of(pattern, shape, **options):
    @nki.jit
    def kernel(src, index):
        tile = sbuf(shape, src.dtype)
        nisa.memset(dst=tile, value=7.0)
        rows = src.ap(pattern=pattern, vector_offset=load(index), indirect_dim=0)
        nisa.dma_transpose(dst=tile, src=rows, **options)
        return store(tile)

    return kernel


def data(*shape, dtype=BF16):
    return np.random.default_rng(0).integers(0, 200, shape).astype(np.float32).astype(dtype)


def indices(shape, most, seed=1):
    return np.random.default_rng(seed).integers(0, most, shape).astype(np.uint32)


@pytest.mark.parametrize(
    ("partitions", "columns", "rows"), [(16, 1, 16), (64, 1, 48), (128, 2, 256), (128, 2, 144)]
)
def test_rule_99_column_after_column(partitions, columns, rows):
    src, index = data(40, 24), indices((partitions, columns), 40)
    out = everywhere(kernel_of([[24, rows], [1, 24]], (24, rows), axes=(1, 0)), src, index)
    flat = [int(index[p, c]) for c in range(columns) for p in range(partitions)]
    for i in range(rows):
        assert out[:, i].tolist() == src[flat[i]].tolist()


def test_four_axes():
    src, index = data(10, 3, 1, 8), indices((16, 1), 10)
    out = everywhere(
        kernel_of([[24, 16], [8, 3], [8, 1], [1, 8]], (8, 3, 1, 16), axes=(3, 1, 2, 0)), src, index
    )
    for i in range(16):
        for a in range(3):
            assert out[:, a, 0, i].tolist() == src[index[i, 0], a, 0].tolist()


def test_rule_96_rows_outside_keep_the_old_columns():
    src, index = data(10, 24, dtype=np.float16), indices((16, 1), 10)
    index[[2, 9], 0] = (10, 0xFFFFFFFF)
    kernel = kernel_of([[24, 16], [1, 24]], (24, 16), oob_mode=nisa.oob_mode.skip)
    out = everywhere(kernel, src, index)
    for i in range(16):
        assert out[:, i].tolist() == ([7] * 24 if i in (2, 9) else src[index[i, 0]].tolist())
    with pytest.raises(errors.DynamicBoundsError, match="index 10"):
        nki.simulate(kernel_of([[24, 16], [1, 24]], (24, 16)))(src, index)


def test_software_descriptors():
    (node,) = staged(
        kernel_of([[24, 16], [1, 24]], (24, 16)), "dma_transpose", data(10, 24), indices((16, 1), 10)
    )
    assert node.dge_mode is nisa.dge_mode.swdge and node.engine is nisa.engine.gpsimd


@pytest.mark.parametrize(
    ("src", "index", "pattern", "shape", "options", "error", "word"),
    [
        (data(10, 24), (16, 1), [[24, 8], [1, 24]], (24, 8), {}, errors.RuleError, "multiple of 16"),
        (
            data(10, 24, dtype=np.float32),
            (16, 1),
            [[24, 16], [1, 24]],
            (24, 16),
            {},
            errors.RuleError,
            "2 bytes",
        ),
        (
            data(10, 4, 2, 8),
            (16, 1),
            [[64, 16], [16, 4], [8, 2], [1, 8]],
            (8, 4, 2, 16),
            {},
            errors.RuleError,
            "1",
        ),
        (data(10, 24), (17, 1), [[24, 16], [1, 24]], (24, 16), {}, errors.RuleError, "steps of 16"),
        (data(10, 24), (16, 2), [[24, 32], [1, 24]], (24, 32), {}, errors.RuleError, "128 partitions"),
        (
            data(10, 24),
            (16, 1),
            [[24, 16], [1, 24]],
            (24, 16),
            {"dge_mode": nisa.dge_mode.hwdge},
            errors.RuleError,
            "swdge",
        ),
    ],
)
def test_rule_99_refused(src, index, pattern, shape, options, error, word):
    with pytest.raises(error, match=word):
        kernel_of(pattern, shape, **options).ir(src, indices(index, 10), target="trn2")


def test_index_type_and_generation():
    kernel = kernel_of([[24, 16], [1, 24]], (24, 16))
    with pytest.raises(errors.RuleError, match="uint32"):
        kernel.ir(data(10, 24), indices((16, 1), 10).astype(np.int32), target="trn2")
    with pytest.raises(errors.TargetError, match="trn2 and later"):
        kernel.ir(data(10, 24), indices((16, 1), 10), target="trn1")
    assert nl.uint32 == "uint32"
