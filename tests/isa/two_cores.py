"""Pieces for kernels on two cores: tiles, exchanges, running `kernel[2]`. Tests nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

X = np.arange(32, dtype=np.float32).reshape(4, 8)
FAR = 100.0
"""What core 1's tile differs by from core 0's in `own`."""


def shared(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A tensor that both cores see."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def tile(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A tile of this core."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def own(x: Any) -> Any:
    """A tile with x on core 0 and x + FAR on core 1."""
    mine = tile(x.shape, x.dtype)
    nisa.dma_copy(dst=mine, src=x)
    nisa.tensor_scalar(dst=mine, data=mine, op0=nl.add, operand0=FAR * nl.program_id(0))
    return mine


def exchange(src: Any, dst: Any, pipe: int = 0, **more: Any) -> None:
    """Both cores give `src` and receive in `dst`."""
    peer = 1 - nl.program_id(0)
    nisa.sendrecv(src=src, dst=dst, send_to_rank=peer, recv_from_rank=peer, pipe_id=pipe, **more)


def swapped(x: Any, **more: Any) -> Any:
    """The other core's tile."""
    mine = own(x)
    dst = tile(x.shape, x.dtype)
    exchange(mine, dst, **more)
    return dst


def both(mine: Any) -> Any:
    """A tensor with core 0's tile and core 1's, one after the other: [2, *shape]."""
    out = shared((2, *mine.shape), mine.dtype)
    nisa.dma_copy(dst=out[nl.program_id(0)], src=mine)
    return out


def run(function: Callable[..., Any], *arrays: Any, target: str = "trn2", **options: Any) -> Any:
    """What `kernel[2]` returns."""
    return nki.simulate(nki.jit(function)[2], target=target, **options)(*(arrays or (X,)))


def refused(
    function: Callable[..., Any], kind: type[Exception], text: str, *arrays: Any, **options: Any
) -> Any:
    """Running `kernel[2]` raises this error, which is returned."""
    with pytest.raises(kind, match=text) as caught:
        run(function, *arrays, **options)
    return caught.value
