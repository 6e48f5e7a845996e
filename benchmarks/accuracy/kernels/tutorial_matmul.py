"""The matmul of the kernel-optimisation tutorial, version by version (kernel-optimization.rst, profiles v2 to v5)."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, Figure, device_us, duration_ns, row
from benchmarks.accuracy.kernels.probe_figures import drawn_ms, packet_ms, rhythm_ns, scaled, step_ns

M, K, N = 4096, 8192, 8192
"""Sizes of the tutorial's measurements, in float32."""

TILE = 128
WIDTH = 512

BLOCK_M, BLOCK_N, BLOCK_K = 16, 2, 8
"""Tiles in a block of v5."""

SPILLED = 10
"""Tiles of sums that v5 must keep in HBM between two blocks of K on trn2; see `blocked_everywhere`."""


def load(window: Any) -> Any:
    """A new SBUF tile with what is in a window of HBM, by one DMA."""
    tile = nl.ndarray(window.shape, dtype=window.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=window)
    return tile


def store_sums(out: Any, sums: Any) -> None:
    """Sums in PSUM to HBM, by way of SBUF."""
    tile = nl.ndarray(sums.shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=sums)
    nisa.dma_copy(dst=out, src=tile)


def tile_of(tensor: Any, k: int, column: int, width: int) -> Any:
    """The window of rows that one contraction step reads, `column` counted in widths."""
    return tensor[k * TILE : (k + 1) * TILE, column * width : (column + 1) * width]


@nki.jit
def loads_inside(lhs_t: Any, rhs: Any) -> Any:
    """v2: both operands are loaded again before every product.  Rows ko-v2, ko-v2-te, ko-v2-dma.

    lhs_t [K, M], rhs [K, N] -> [M, N]. Loops m, n, k; 64 + 256 KiB are loaded for each product of 128 x 128 x 512.
    """
    (depth, rows), columns = lhs_t.shape, rhs.shape[1]
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(rows // TILE):
        for n in range(columns // WIDTH):
            sums = nl.ndarray((TILE, WIDTH), dtype=nl.float32, buffer=nl.psum)
            for k in range(depth // TILE):
                stationary, moving = load(tile_of(lhs_t, k, m, TILE)), load(tile_of(rhs, k, n, WIDTH))
                nisa.nc_matmul(dst=sums, stationary=stationary, moving=moving)
            store_sums(tile_of(out, m, n, WIDTH), sums)
    return out


@nki.jit
def loads_hoisted(lhs_t: Any, rhs: Any) -> Any:
    """v3: a column of lhs tiles is loaded per m, a column of rhs tiles per (m, n).  Rows ko-v3, ko-v3-te, ko-v3-dma.

    lhs_t [K, M], rhs [K, N] -> [M, N]. The same DMAs as in v2, but those of lhs once for all n.
    """
    (depth, rows), columns = lhs_t.shape, rhs.shape[1]
    steps = depth // TILE
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(rows // TILE):
        stationary = [load(tile_of(lhs_t, k, m, TILE)) for k in range(steps)]
        for n in range(columns // WIDTH):
            moving = [load(tile_of(rhs, k, n, WIDTH)) for k in range(steps)]
            sums = nl.ndarray((TILE, WIDTH), dtype=nl.float32, buffer=nl.psum)
            for k in range(steps):
                nisa.nc_matmul(dst=sums, stationary=stationary[k], moving=moving[k])
            store_sums(tile_of(out, m, n, WIDTH), sums)
    return out


@nki.jit
def blocked_everywhere(lhs_t: Any, rhs: Any, spilled: int) -> Any:
    """v5: blocks of 16 x 2 x 8 tiles; sums of a whole column of blocks stay in SBUF while k runs.  Rows ko-v5*.

    lhs_t [K, M], rhs [K, N] -> [M, N]. Loops n, k, m over blocks, then bn, bm, bk inside: eight products accumulate in
    PSUM, then the Vector engine adds them to the sums. Eight tiles [128, 1024] are loaded per (n, k), eight of
    [128, 2048] per (n, k, m).

    Of M = 4096 a partition would need 128 KiB of sums, 32 of rhs, 64 of lhs and 4 to work in: 20 more than trn2 has.
    The published profile shows as much going out and in again per (n, k): 1.82 GB (8.96 % of 0.716 TB/s for 28.3 ms)
    where the loops move 1.48 GB. spilled: tiles of 2 KiB a partition for which that is written out here.
    """
    (depth, rows), columns = lhs_t.shape, rhs.shape[1]
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    away = nl.ndarray((max(spilled, 1), TILE, WIDTH), dtype=nl.float32, buffer=nl.private_hbm)
    for n in range(columns // (BLOCK_N * WIDTH)):
        sums = make_sums(rows // TILE * BLOCK_N, away, spilled)
        for k in range(depth // (BLOCK_K * TILE)):
            steps = range(k * BLOCK_K, (k + 1) * BLOCK_K)
            moving = [load(tile_of(rhs, step, n, BLOCK_N * WIDTH)) for step in steps]
            for m in range(rows // (BLOCK_M * TILE)):
                stationary = [load(tile_of(lhs_t, step, m, BLOCK_M * TILE)) for step in steps]
                block = sums[m * BLOCK_M * BLOCK_N : (m + 1) * BLOCK_M * BLOCK_N]
                add_block(block, stationary, moving)
        for row_tile in range(rows // TILE):
            packed = nl.ndarray((TILE, BLOCK_N * WIDTH), dtype=nl.float32, buffer=nl.sbuf)
            for bn in range(BLOCK_N):
                columns_of_bn = packed[:, bn * WIDTH : (bn + 1) * WIDTH]
                nisa.tensor_copy(dst=columns_of_bn, src=sums[row_tile * BLOCK_N + bn].fetch())
            nisa.dma_copy(dst=tile_of(out, row_tile, n, BLOCK_N * WIDTH), src=packed)
    return out


class Sums(nl.NKIObject):
    """A tile of sums: in SBUF, or in a slot of HBM to which it goes back after every addition."""

    def __init__(self, home: Any) -> None:
        self.home = home
        self.tile = None if home is not None else zeros()

    def fetch(self) -> Any:
        return self.tile if self.home is None else load(self.home)

    def add(self, products: Any) -> None:
        tile = self.fetch()
        nisa.tensor_tensor(dst=tile, data1=tile, data2=products, op=nl.add)
        if self.home is not None:
            nisa.dma_copy(dst=self.home, src=tile)


def zeros() -> Any:
    """A tile of sums in SBUF that starts at 0."""
    tile = nl.ndarray((TILE, WIDTH), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    return tile


def make_sums(count: int, away: Any, spilled: int) -> list[Sums]:
    """`count` tiles at 0, of which `spilled`, evenly spread, live in HBM."""
    homes = {i * count // spilled: away[i] for i in range(spilled)} if spilled else {}
    for home in homes.values():
        nisa.dma_copy(dst=home, src=zeros())
    return [Sums(homes.get(i)) for i in range(count)]


def add_block(sums: list[Sums], stationary: list[Any], moving: list[Any]) -> None:
    """Add the products of one block: columns, then rows, eight products at a time in PSUM."""
    for bn in range(BLOCK_N):
        for bm in range(BLOCK_M):
            products = nl.ndarray((TILE, WIDTH), dtype=nl.float32, buffer=nl.psum)
            for left, right in zip(stationary, moving):
                nisa.nc_matmul(
                    dst=products,
                    stationary=left[:, bm * TILE : (bm + 1) * TILE],
                    moving=right[:, bn * WIDTH : (bn + 1) * WIDTH],
                )
            sums[bm * BLOCK_N + bn].add(products)


def case(kernel: Any, figure: Figure, *more: Any, m: int = M, k: int = K, n: int = N) -> Case:
    """A version of the kernel on float32 operands."""
    operands = np.zeros((k, m), np.float32), np.zeros((k, n), np.float32)
    return Case(kernel, (*operands, *more), figure)


def half_v5(figure: Figure) -> Case:
    """v5 with one of the two blocks of rows, which need no spilling, counted twice."""
    return case(blocked_everywhere, scaled(figure, 2), 0, m=M // 2)


def one_block(figure: Figure) -> Case:
    """v5 on one block: what is read off single bars of its profile."""
    return case(blocked_everywhere, figure, 0, m=BLOCK_M * TILE, k=BLOCK_K * TILE, n=BLOCK_N * WIDTH)


row("ko-v2", lambda: case(loads_inside, device_us))
row("ko-v2-te", lambda: case(loads_inside, drawn_ms("tensor")))
row("ko-v2-dma", lambda: case(loads_inside, packet_ms))
row("ko-v3", lambda: case(loads_hoisted, device_us))
row("ko-v3-te", lambda: case(loads_hoisted, drawn_ms("tensor")))
row("ko-v3-dma", lambda: case(loads_hoisted, packet_ms))
row("ko-v5", lambda: half_v5(device_us))
row("ko-v5-te", lambda: half_v5(drawn_ms("tensor")))
row("ko-v5-vec", lambda: half_v5(drawn_ms("vector")))
row("ko-v5-dma", lambda: case(blocked_everywhere, packet_ms, SPILLED))

row(
    "ko-v2-dmaissue", lambda: case(loads_inside, rhythm_ns("dma_copy", 0, 2 * K // TILE - 1), m=TILE, n=WIDTH)
)
row("ko-v5-ls", lambda: one_block(step_ns("nc_matmul", "load_stationary")))
row("ko-v5-tt", lambda: one_block(duration_ns("tensor_tensor")))
