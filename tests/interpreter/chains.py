"""Random chains of instructions on a few tiles that are reused, overlap and change type all the time. Tests nothing.

A chain is data: `Chain.of(seed)` decides everything, `chain_kernel.py` replays it. All values are small whole numbers,
so sums are exact in every order and results can be compared bit by bit with a machine that works differently.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

P, F = 4, 24
SHAPES = ((P, F), (P, 2, 12), (P, 4, 6), (P, 2, 3, 4))
DTYPES = ("float32", "bfloat16", "float16", "float8_e5m2", "int32", "int16", "int8", "uint8")
KINDS = [
    "copy",
    "tt",
    "tt",
    "ts",
    "stt",
    "act",
    "act",
    "tsr",
    "fold",
    "set",
    "dma",
    "dma",
    "scan",
    "flip",
    "iota",
]
ARGUMENTS = (("x", (P, F), np.float32), ("y", (2, P, 12), ml_dtypes.bfloat16), ("z", (P * F,), np.int32))


@dataclass
class Tile:
    """A tile to allocate. `address` is `None` for the allocator's choice."""

    shape: tuple[int, ...]
    dtype: str
    psum: bool = False
    address: tuple[int, int] | None = None


@dataclass
class View:
    """`n` elements of each partition of a tile, chosen in one of several ways."""

    tile: int
    kind: str
    numbers: tuple[int, ...]


@dataclass
class Chain:
    """Tiles and steps; a step is a kind and what it needs."""

    tiles: list[Tile] = field(default_factory=list)
    steps: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    @staticmethod
    def of(seed: int, length: int = 14) -> Chain:
        """The chain of a seed."""
        rng = random.Random(seed)
        chain = Chain()
        narrow = rng.random() < 0.5
        for _ in range(rng.randint(2, 4)):
            dtype = rng.choice(DTYPES[1:] if narrow else DTYPES[:2])
            psum = rng.random() < 0.25 and dtype in ("float32", "bfloat16")
            chain.tiles.append(Tile(rng.choice(SHAPES), dtype, psum))
        if rng.random() < 0.5:  # tiles of one type laid over each other
            dtype = rng.choice(DTYPES[:5])
            size = np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize
            for _ in range(rng.randint(2, 3)):
                address = (rng.choice((0, 0, 1, 2)), size * rng.choice((0, 1, 4, 12)))
                chain.tiles.append(Tile(rng.choice(SHAPES), dtype, address=address))
        rng.shuffle(chain.tiles)
        chain.steps = [_step(rng, chain.tiles) for _ in range(rng.randint(3, length))]
        return chain


def _view(rng: random.Random, tiles: list[Tile], near: int | None, n: int | None, *, read: bool) -> View:
    """A window of `n` elements, half of the time on the tile `near`."""
    tile = near if near is not None and rng.random() < 0.6 else rng.randrange(len(tiles))
    kinds = ["range", "range", "range", "boxes"] + (
        ["repeat"] if read else ["pile"] if rng.random() < 0.1 else []
    )
    kind = rng.choice(kinds) if n != F else rng.choice(("whole", "turned"))
    n = n or rng.choice((1, 4, 6, 8, 12))
    if kind == "range":
        step = rng.choice([s for s in (1, 1, 1, 2, 3) if (n - 1) * s < F])
        return View(tile, kind, (rng.randint(0, F - 1 - (n - 1) * step), n, step))
    if kind == "boxes":
        rows = rng.choice([r for r in (1, 2, 4) if n % r == 0 and n // r <= 6])
        columns = n // rows
        corner = (rng.randint(0, 4 - rows), rng.randint(0, 6 - columns))
        return View(tile, kind, (rows, columns, *corner, rng.randint(0, 1)))
    return View(tile, kind, (rng.randrange(F), n))


def _step(rng: random.Random, tiles: list[Tile]) -> tuple[str, tuple[Any, ...]]:
    kind = rng.choice(KINDS)
    n = rng.choice((1, 4, 6, 8, 12, F))
    target = rng.randrange(len(tiles))
    dst = _view(rng, tiles, target, n, read=False)
    reads = [_view(rng, tiles, dst.tile, n, read=True) for _ in range(3)]
    columns = [
        _view(rng, tiles, dst.tile, 1, read=True) if rng.random() < 0.5 else rng.choice((-1.0, 1.0, 2.0))
        for _ in range(2)
    ]
    out = _view(rng, tiles, dst.tile, 1, read=False)
    ends = tuple(rng.choice((None, None, *range(len(ARGUMENTS) + 1))) for _ in range(2))
    return kind, (dst, *reads, *columns, out, rng.randrange(1 << 16), ends)


def inputs(seed: int) -> list[np.ndarray]:
    """Arrays for x, y and z."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-8, 9, shape).astype(dtype) for _, shape, dtype in ARGUMENTS]
