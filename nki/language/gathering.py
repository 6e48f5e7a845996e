"""Choosing elements by their index: gather_flattened."""

from __future__ import annotations

from typing import Any

from nki import dtypes, errors
from nki.language.instructions import nisa
from nki.language.operands import as_kind, fresh, in_sbuf, require_tile
from nki.span import capture
from nki.tensor import NkiTensor


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """A new tile of the shape of `indices`: in each partition the elements of `data` that they name.

    The free dimensions of `data` count as one. `axis` chooses nothing: 0 (the default) and the last one mean that.
    Source: nki.language.gather_flattened; semantics rule 105.
    """
    tile, places = (
        require_tile("gather_flattened", data, "data"),
        require_tile("gather_flattened", indices, "indices"),
    )
    if axis not in (0, -1, tile.ndim - 1):
        raise errors.ArgumentError(
            f"nl.gather_flattened: axis {axis} of `data` cannot be gathered along",
            operand=tile.access.describe(),
            found=f"axis={axis}",
            allowed="the free dimensions as one: leave `axis` out",
            remedy="reshape `data` so that the dimension is the only free one",
            span=capture(),
        )
    places = in_sbuf(places)
    if places.dtype == dtypes.int32:
        places = places.view(dtypes.uint32)
    elif places.dtype != dtypes.uint32:
        wide = fresh(places.shape, dtypes.uint32, name="indices")
        nisa.tensor_copy(wide, places)
        places = wide
    kind = as_kind(dtype, tile.dtype)
    found = fresh(places.shape, tile.dtype)
    nisa.nc_n_gather(dst=found, data=in_sbuf(tile), indices=places)
    if kind == tile.dtype:
        return found
    out = fresh(places.shape, kind)
    nisa.tensor_copy(out, found)
    return out
