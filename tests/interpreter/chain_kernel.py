"""A kernel that replays a chain of `chains.py`. Tests nothing."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.interpreter.chain_steps import STEPS
from tests.interpreter.chains import Chain, F, P


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
