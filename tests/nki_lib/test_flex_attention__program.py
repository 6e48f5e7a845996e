"""The program of flex attention: both ways to run it, its text, its checks, and what is skipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
from nki_lib.attention.flex_attention import recipes
from nki_lib.attention.flex_attention.kernel import flex_attention as kernel
from nki_lib.attention.flex_attention.recipe import EMPTY, FULL, HOLE, PARTIAL, MaskRecipe
from nki_lib.attention.flex_attention.schedule import query_tiles
from tests.source_tree import ROOT

MASKS: dict[str, MaskRecipe] = {
    "causal": recipes.causal(),
    "causal moved": recipes.causal(7),
    "window": recipes.sliding_window(100),
    "causal window": recipes.causal(-3) & recipes.sliding_window(130),
    "prefix": recipes.prefix_lm(200),
}


def kinds_of(mask: MaskRecipe, queries: int, keys: int, side: int = 128) -> bytes:
    return bytes(
        mask.cover(q, min(q + side, queries), k, min(k + side, keys))
        for q in range(0, queries, side)
        for k in range(0, keys, side)
    )


def arguments(dtype: Any = np.float32, queries: int = 150, keys: int = 600) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    q = random.standard_normal((2, queries, 32), np.float32).astype(dtype)
    k, v = (random.standard_normal((keys, 32), np.float32).astype(dtype) for _ in range(2))
    score = recipes.Alibi(HOLE) >> recipes.softcap(9.0)
    mask = recipes.causal(450) & recipes.DocumentMask(HOLE)
    ids = (np.arange(keys) // 70).astype(np.float32)
    slopes = np.array([0.5, -0.1], np.float32)
    return q, k, v, 0.2, score, mask, [slopes, ids], [], kinds_of(mask, queries, keys), (128, 128)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
def test_eager_planned_and_text_give_the_same_bits(dtype: Any, tmp_path: Path) -> None:
    planned = kernel(*arguments(dtype))
    assert np.isfinite(planned.astype(np.float32)).all()
    assert planned.tobytes() == nki.simulate(kernel, eager=True)(*arguments(dtype)).tobytes()
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*arguments(dtype))), encoding="utf-8")
    q, k, v, *_, data, _, _, _ = arguments(dtype)
    assert nki.load_ir(path)(q, k, v, *data).tobytes() == planned.tobytes()


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_clean_under_every_check(target: str) -> None:
    call = arguments()
    assert [str(d) for d in kernel.check(*call, target=target) if d.severity != "note"] == []
    sanitized = nki.simulate(kernel, target=target, sanitize=True)(*call)
    assert sanitized.tobytes() == nki.simulate(kernel, target=target)(*call).tobytes()


def test_tiles_are_clean_too() -> None:
    q, k, v, scale, *_ = arguments()
    masks = [np.random.default_rng(1).integers(0, 2, (3, 100, 300), np.uint8)]
    call = (q, k, v, scale, None, None, [], masks, bytes([PARTIAL, FULL, PARTIAL, PARTIAL]), (100, 300))
    assert [str(d) for d in kernel.check(*call) if d.severity != "note"] == []


def count(name: str, kinds: bytes, mask: MaskRecipe | None) -> int:
    q = np.zeros((1, 512, 16), np.float32)
    program = kernel.ir(q, q[0], q[0], 1.0, None, mask, [], [], kinds, (128, 128))
    return sum(type(i).__name__ == name for core in program.cores for i in core)


def test_empty_blocks_are_skipped_and_full_ones_not_masked() -> None:
    causal = recipes.causal()
    kinds = kinds_of(causal, 512, 512)
    assert count("affine_select", kinds, causal) == 4  # one block of each tile is partial
    assert count("affine_select", bytes([FULL]) * 16, causal) == 0
    assert (
        count("nc_matmul", bytes([FULL]) * 16, None) == 4 + 16
    )  # per tile, scores at once, then 128 keys at a time
    assert count("nc_matmul", kinds, causal) == 4 + 1 + 2 + 3 + 4
    assert count("nc_matmul", bytes(16), causal) == 0


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("side", [1, 16, 50])
def test_cover_is_right(mask: str, side: int) -> None:
    """EMPTY and FULL are what the mask says; for single elements and simple masks, nothing is called PARTIAL."""
    pytest.importorskip("torch")
    import torch

    q, k = torch.arange(260)[:, None], torch.arange(300)[None]
    seen = MASKS[mask].torch(None, None, q, k)
    if side == 1:
        q, k, seen = q[::9], k[:, ::7], seen[::9, ::7]
        kinds = [
            MASKS[mask].cover(i, i + 1, j, j + 1) for i in q.flatten().tolist() for j in k.flatten().tolist()
        ]
        assert kinds == torch.where(seen, FULL, EMPTY).flatten().tolist()
        return
    kinds = list(kinds_of(MASKS[mask], 260, 300, side))
    parts = [block for row in seen.split(side) for block in row.split(side, 1)]
    for kind, block in zip(kinds, parts, strict=True):
        exact = FULL if block.all() else PARTIAL if block.any() else EMPTY
        assert kind in (exact, PARTIAL)
        assert kind == exact or mask == "causal window"


def test_schedule_covers_every_block_once() -> None:
    """Windows and what lies between them say of every column what its block is."""
    random = np.random.default_rng(3)
    for queries, keys, block in ((300, 1100, (48, 80)), (130, 700, (256, 128)), (20, 513, (16, 1024))):
        shape = (-(-queries // block[0]), -(-keys // block[1]))
        kinds = random.integers(0, 3, shape).astype(np.uint8)
        tiles = query_tiles((1, queries), keys, kinds.tobytes(), block, False)
        assert [row for t in tiles for row in range(t.start, t.stop)] == list(range(queries))
        order = {tuple(place): i for i, place in enumerate(np.argwhere(kinds == PARTIAL).tolist())}
        for tile in tiles:
            row = tile.start // block[0]
            found = np.zeros(keys, np.uint8)
            for step in tile.steps:
                first = step.chunk + step.start
                assert step.start % 128 == 0 and step.chunk % 512 == 0 and step.stop <= 512
                found[first : step.chunk + step.stop] = FULL
                for w in step.windows:
                    found[first + w.start : first + w.stop] = w.kind
                    if w.kind == PARTIAL:
                        column = (first + w.start) // block[1]
                        assert w.block == order[row, column]
                        assert w.column == first + w.start - column * block[1]
                        assert w.row == tile.start - row * block[0]
            assert (found == np.repeat(kinds[row], block[1])[:keys]).all()


@pytest.mark.slow
def test_without_torch() -> None:
    """The package imports and its kernels run; the front door says what to install."""
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
sys.modules["torch"] = None
import numpy as np
from nki_lib.attention.flex_attention import recipes
from nki_lib.attention.flex_attention.api import flex_attention as front
from nki_lib.attention.flex_attention.kernel import flex_attention
x = np.ones((4, 8), np.float32)
assert np.allclose(flex_attention(x[None], x, x, 1.0, None, recipes.causal(), [], [], bytes([1]), (128, 128)), 1)
try:
    front(x, x, x, mask_mod=recipes.causal())
except ImportError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "open-nki[torch]" in run.stdout, run.stderr
