"""Memory regions and the constants of a tile's size."""

from __future__ import annotations

import warnings
from typing import Any

from nki.enums import MemoryRegion
from nki.ir import builder
from nki.objects import NKIObject
from nki.target import Target, configured, get_target
from nki.tensor import hbm, private_hbm, psum, sbuf, shared_hbm

__all__ = [
    "MemoryRegion",
    "hbm",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "private_hbm",
    "psum",
    "sbuf",
    "shared_hbm",
    "tile_size",
]


def is_hbm(buffer: Any) -> bool:
    """Whether `buffer` is one of the HBM regions."""
    return buffer is private_hbm or buffer is shared_hbm


def is_on_chip(buffer: Any) -> bool:
    """Whether `buffer` is SBUF or PSUM, the memories with a partition dimension."""
    return buffer is sbuf or buffer is psum


def is_psum(buffer: Any) -> bool:
    """Whether `buffer` is PSUM."""
    return buffer is psum


def is_sbuf(buffer: Any) -> bool:
    """Whether `buffer` is SBUF."""
    return buffer is sbuf


def target() -> Target:
    """The machine of the kernel being staged, else that of the environment."""
    current = builder.current()
    return current.target if current is not None else configured(get_target())


class _TileSize(NKIObject):
    """Sizes that tiles must respect, on the target that is compiled for. Free sizes are per partition."""

    @property
    def pmax(self) -> int:
        """Most partitions of a tile."""
        return target().pmax

    @property
    def psum_bank_fmax(self) -> int:
        """float32 elements of a PSUM bank."""
        return target().psum_bank_fmax

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes of a PSUM bank."""
        return target().psum_bank_fmax_bytes

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks a kernel may use."""
        return target().psum_num_banks

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free size of the stationary operand of a matmul."""
        return target().gemm_stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Free size of the moving operand of a matmul."""
        return target().gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Free size of bn_stats."""
        return target().bn_stats_fmax

    @property
    def psum_min_align(self) -> int:
        """Alignment of PSUM addresses in bytes."""
        return target().psum_min_align

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of SBUF addresses in bytes."""
        return target().sbuf_min_align

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, all partitions together."""
        return target().sbuf_size_bytes

    @property
    def sbuf_fmax(self) -> int:
        """float32 elements of SBUF that a kernel may use in a partition."""
        return target().sbuf_fmax

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes of SBUF that a kernel may use in a partition."""
        return target().sbuf_fmax_bytes

    @property
    def psum_fmax(self) -> int:
        """Deprecated name of `psum_bank_fmax`."""
        _deprecated("psum_fmax", "psum_bank_fmax")
        return self.psum_bank_fmax

    @property
    def total_available_sbuf_size(self) -> int:
        """Deprecated name of `sbuf_fmax_bytes`."""
        _deprecated("total_available_sbuf_size", "sbuf_fmax_bytes")
        return self.sbuf_fmax_bytes

    def __repr__(self) -> str:
        return f"nl.tile_size ({target().name})"


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(
        f"nl.tile_size.{name} is deprecated; use nl.tile_size.{instead}", DeprecationWarning, stacklevel=3
    )


tile_size = _TileSize()
