"""Moving whole tiles between HBM and SBUF: load, store, load_transpose2d."""

from __future__ import annotations

from typing import Any

from nki import errors
from nki.language.instructions import nisa
from nki.language.memory import is_psum
from nki.language.operands import as_kind, fresh, require_tile
from nki.span import capture
from nki.tensor import NkiTensor


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the content of `src`, converted if `dtype` says so."""
    source = _tensor_of_rows("load", src)
    out = fresh(source.shape, as_kind(dtype, source.dtype))
    nisa.dma_copy(dst=out, src=source)
    return out


def _tensor_of_rows(what: str, src: Any) -> NkiTensor:
    source = require_tile(what, src, "src")
    if source.ndim < 2 and source.size > 1:
        raise errors.ShapeError(
            f"nl.{what}: `src` has one dimension, a tile has partitions and free elements",
            operand=source.access.describe(),
            found=list(source.shape),
            allowed="at least two dimensions",
            remedy=f"write src.reshape((1, {source.size})) for one row, or keep the dimension: t[i:i+1, :]",
            span=capture(2),
        )
    return source


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Write an SBUF tile to `dst` in HBM, converted to its dtype."""
    tile, target = require_tile("store", value, "value"), require_tile("store", dst, "dst")
    if is_psum(tile.buffer):
        raise errors.MemoryError_(
            "nl.store: `value` must live in sbuf; a DMA cannot read psum",
            operand=tile.access.describe(),
            found="psum",
            allowed="sbuf",
            remedy="copy it first: nl.store(dst, nl.copy(value))",
            span=capture(),
        )
    nisa.dma_copy(dst=target, src=tile)


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the transpose of the (rows, columns) tensor `src`.

    A transposing DMA; if `dtype` says that the values change, a copy column by column.
    """
    source = require_tile("load_transpose2d", src, "src")
    if source.ndim != 2:
        raise errors.ShapeError(
            f"nl.load_transpose2d: `src` has {source.ndim} dimensions",
            operand=source.access.describe(),
            found=list(source.shape),
            allowed="two dimensions",
            remedy="select or merge dimensions first",
            span=capture(),
        )
    turned = source.permute((1, 0))
    out = fresh(turned.shape, as_kind(dtype, source.dtype))
    if out.dtype == source.dtype:
        nisa.dma_transpose(dst=out, src=source)
    else:
        nisa.dma_copy(dst=out, src=turned)
    return out
