"""Names of older releases, each with what replaces it; `nki/language/__init__.py` raises them on access."""

from __future__ import annotations

from typing import Final

from nki import errors
from nki.span import capture

REPLACEMENTS: Final = {
    "arange": "address tiles with slices: t[0:128, 0:512], or t.ap(pattern) for other patterns",
    "mgrid": "address tiles with slices: t[0:128, 0:512], or t.ap(pattern) for other patterns",
    "par_dim": "dimension 0 is the partition dimension; for blocks of tiles keep a Python list of nl.ndarray",
    "static_cast": "nl.copy(x, dtype=...)",
    "cast": "nl.copy(x, dtype=...)",
    "loop_reduce": "accumulate in the loop: nisa.tensor_tensor(dst=acc, data1=acc, data2=x, op=nl.add)",
    "atomic_rmw": "nisa.dma_compute",
    "all_reduce": "nki.collectives.all_reduce",
    "gemm_grid": "slices of a tile",
    "gemm_stationary_grid": "slices of a tile",
    "nc": "launch with kernel[2]",
    "spmd_dim": "launch with kernel[2] and split the work by nl.program_id(0)",
    "finfo": "numpy.finfo, or ml_dtypes.finfo for the narrow types",
    "fp32": "float(numpy.finfo(numpy.float32).min) for fp32.min",
    "bfp16": "float(ml_dtypes.finfo('bfloat16').min) for bfp16.min",
}


def removed(name: str) -> Exception:
    """The error for a name that `nki.language` does not have."""
    if name in REPLACEMENTS:
        return errors.RemovedApiError(
            f"nl.{name} belongs to an older release and is not part of nki.language",
            found=f"nl.{name}",
            remedy=f"use instead: {REPLACEMENTS[name]}",
            span=capture(2),
        )
    return AttributeError(f"module 'nki.language' has no attribute {name!r}")
