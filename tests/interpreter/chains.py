"""Random chains of instructions on a few tiles that are reused, overlap and change type all the time. Tests nothing.

A chain is data: `Chain.of(seed)` decides everything, `kernel_of(chain)` replays it. All values are small whole numbers,
so sums are exact in every order and results can be compared bit by bit with a machine that works differently.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors

P, F = 4, 24
SHAPES = ((P, F), (P, 2, 12), (P, 4, 6), (P, 2, 3, 4))
DTYPES = ("float32", "bfloat16", "float16", "float8_e5m2", "int32", "int16", "int8", "uint8")
TT_OPS = (nl.add, nl.subtract, nl.maximum, nl.minimum, nl.greater, nl.equal)
REDUCE_CMDS = ("idle", "reset", "reduce", "reset_reduce")
KINDS = ("copy", "tt", "tt", "ts", "stt", "act", "act", "tsr", "fold", "set", "dma", "dma", "scan", "flip", "iota")
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
    kinds = ["range", "range", "range", "boxes"] + (["repeat"] if read else ["pile"] if rng.random() < 0.1 else [])
    kind = rng.choice(kinds) if n != F else rng.choice(("whole", "turned"))
    n = n or rng.choice((1, 4, 6, 8, 12))
    if kind == "range":
        step = rng.choice([s for s in (1, 1, 1, 2, 3) if (n - 1) * s < F])
        return View(tile, kind, (rng.randint(0, F - 1 - (n - 1) * step), n, step))
    if kind == "boxes":
        rows = rng.choice([r for r in (1, 2, 4) if n % r == 0 and n // r <= 6])
        return View(tile, kind, (rows, n // rows, rng.randint(0, 4 - rows), rng.randint(0, 6 - n // rows), rng.randint(0, 1)))
    return View(tile, kind, (rng.randrange(F), n))


def _step(rng: random.Random, tiles: list[Tile]) -> tuple[str, tuple[Any, ...]]:
    kind = rng.choice(KINDS)
    n = rng.choice((1, 4, 6, 8, 12, F))
    target = rng.randrange(len(tiles))
    dst = _view(rng, tiles, target, n, read=False)
    reads = [_view(rng, tiles, dst.tile, n, read=True) for _ in range(3)]
    columns = [_view(rng, tiles, dst.tile, 1, read=True) if rng.random() < 0.5 else rng.choice((-1.0, 1.0, 2.0)) for _ in range(2)]
    out = _view(rng, tiles, dst.tile, 1, read=False)
    ends = tuple(rng.choice((None, None, *range(len(ARGUMENTS) + 1))) for _ in range(2))
    return kind, (dst, *reads, *columns, out, rng.randrange(1 << 16), ends)


def window(tile: Any, view: View) -> Any:
    """The tensor that a `View` describes."""
    flat = tile.reshape((P, F))
    numbers = view.numbers
    if view.kind == "range":
        start, n, step = numbers
        return flat[:, start : start + (n - 1) * step + 1 : step]
    if view.kind == "boxes":
        rows, columns, row, column, turn = numbers
        box = tile.reshape((P, 4, 6))[:, row : row + rows, column : column + columns]
        return box.permute((0, 2, 1)) if turn else box
    if view.kind in ("repeat", "pile"):
        return flat.ap([[F, P], [0, numbers[1]]], offset=numbers[0])
    return tile.reshape((P, 4, 6)).permute((0, 2, 1)) if view.kind == "turned" else tile


def kernel_of(chain: Chain, taken: list[str] | None = None) -> Any:
    """A kernel of x, y and z that fills the tiles, runs the chain and returns all tiles and an internal tensor.

    Steps that an instruction refuses are left out; the kinds of the others are put into `taken`.
    """

    @nki.jit
    def kernel(x, y, z):
        hbm = [x, y, z, nl.ndarray((P, F), dtype=nl.float32, buffer=nl.private_hbm, name="inside")]
        nisa.dma_copy(dst=hbm[3], src=z.reshape((P, F)))
        tiles = [
            nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.psum if t.psum else nl.sbuf, address=t.address)
            for t in chain.tiles
        ]
        for index, tile in enumerate(tiles):
            _fill(tile, hbm[index % 3])
        for kind, details in chain.steps:
            try:
                STEPS[kind](tiles, hbm, *details)
            except errors.NkiError:
                continue
            if taken is not None:
                taken.append(kind)
        outputs = [_down(tile) for tile in tiles]
        inside = nl.ndarray((P, F), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=inside, src=hbm[3])
        return (*outputs, inside, x, y)

    return kernel


def _fill(tile: Any, source: Any) -> None:
    staging = nl.ndarray((P, F), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=staging, src=source)
    nisa.tensor_copy(dst=tile, src=staging)


def _down(tile: Any) -> Any:
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    staging = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=staging, src=tile)
    nisa.dma_copy(dst=result, src=staging)
    return result


def _operand(tiles: list[Any], value: Any) -> Any:
    return window(tiles[value.tile], value) if isinstance(value, View) else value


def _copy(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.tensor_copy(dst=_operand(tiles, dst), src=_operand(tiles, a))


def _tt(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    op = TT_OPS[number % len(TT_OPS)]
    nisa.tensor_tensor(dst=_operand(tiles, dst), data1=_operand(tiles, a), data2=_operand(tiles, b), op=op)


def _ts(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    second = {"op1": TT_OPS[number % 4], "operand1": _operand(tiles, s1)} if number & 64 else {}
    nisa.tensor_scalar(
        dst=_operand(tiles, dst),
        data=_operand(tiles, a),
        op0=TT_OPS[number % len(TT_OPS)],
        operand0=_operand(tiles, s0),
        reverse0=bool(number & 32),
        **second,
    )


def _stt(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.scalar_tensor_tensor(
        dst=_operand(tiles, dst),
        data=_operand(tiles, a),
        op0=TT_OPS[number % 4],
        operand0=_operand(tiles, s0),
        op1=TT_OPS[number // 4 % 4],
        operand1=_operand(tiles, b),
    )


def _act(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    command = REDUCE_CMDS[number % 4]
    result = _operand(tiles, out) if number & 16 else None
    nisa.activation(
        dst=_operand(tiles, dst),
        op=(nl.copy, nl.relu, nl.abs)[number % 3],
        data=_operand(tiles, a),
        bias=_operand(tiles, s0) if number & 32 else None,
        scale=_operand(tiles, s1) if number & 64 else 1.0,
        reduce_op=nl.add if command.endswith("reduce") else None,
        reduce_res=result,
        reduce_cmd=nisa.reduce_cmd[command],
    )


def _tsr(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.tensor_scalar_reduce(
        dst=_operand(tiles, dst),
        data=_operand(tiles, a),
        op0=TT_OPS[number % 4],
        operand0=_operand(tiles, s0),
        reduce_op=(nl.add, nl.maximum)[number & 1],
        reduce_res=_operand(tiles, out),
    )


def _fold(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    data = _operand(tiles, a)
    axes = tuple(range(1 + number % (len(data.shape) - 1), len(data.shape)))
    kept = data.shape[: axes[0]]
    n = int(np.prod(kept[1:]))
    target = tiles[out.tile].reshape((P, F))[:, number % (F - n + 1) : number % (F - n + 1) + n]
    nisa.tensor_reduce(dst=target, op=(nl.add, nl.maximum)[number & 1], data=data, axis=axes, negate=bool(number & 8))


def _set(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.memset(dst=_operand(tiles, dst), value=number % 5)


def _dma(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    """Between tiles and parts of HBM tensors of as many elements, also from an HBM tensor to itself, shifted."""
    target, source = _operand(tiles, dst), _operand(tiles, a)
    n = target.size
    if ends[0] is not None:
        start = number % (P * F - n + 1)
        target = hbm[ends[0]].reshape((P * F,))[start : start + n]
    if ends[1] is not None:
        start = number // 7 % (P * F - n + 1)
        source = hbm[ends[1]].reshape((P * F,))[start : start + n]
    nisa.dma_copy(dst=target, src=source)


def _scan(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.tensor_tensor_scan(
        dst=_operand(tiles, dst),
        data0=_operand(tiles, a),
        data1=_operand(tiles, b),
        initial=_operand(tiles, s0),
        op0=(nl.maximum, nl.minimum)[number & 1],
        op1=(nl.minimum, nl.maximum)[number & 1],
    )


def _flip(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    start, other = number % (F - P), number // 8 % (F - P)
    data = tiles[a.tile].reshape((P, F))[:, start : start + P]
    nisa.nc_transpose(
        dst=tiles[dst.tile].reshape((P, F))[:, other : other + P], data=data, engine=nisa.engine.vector
    )


def _iota(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    target = _operand(tiles, dst)
    pattern = [[1, target.size // P]]
    if number & 1:
        nisa.iota(dst=target, pattern=pattern, offset=number % 3, channel_multiplier=1)
        return
    nisa.affine_select(
        dst=target,
        pattern=pattern,
        channel_multiplier=-1,
        on_true_tile=_operand(tiles, a),
        on_false_value=3.0,
        cmp_op=nl.greater_equal,
    )


STEPS = {
    "copy": _copy,
    "tt": _tt,
    "ts": _ts,
    "stt": _stt,
    "act": _act,
    "tsr": _tsr,
    "fold": _fold,
    "set": _set,
    "dma": _dma,
    "scan": _scan,
    "flip": _flip,
    "iota": _iota,
}


def inputs(seed: int) -> list[np.ndarray]:
    """Arrays for x, y and z."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-8, 9, shape).astype(dtype) for _, shape, dtype in ARGUMENTS]
