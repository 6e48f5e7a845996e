"""What the products of the Tensor engine have in common: shapes, tiles of the array, and accumulation in PSUM."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nki import errors
from nki.enums import engine as Engine
from nki.ir.builder import Builder
from nki.ir.instruction import Steps
from nki.ir.program import Access
from nki.ir.verify import Fault, rule
from nki.isa.compute import ComputeInstruction
from nki.target import Target

Array = NDArray[Any]


class Product(ComputeInstruction, abstract=True):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N] (semantics rules 58-64)."""

    layout = "declared"
    accumulates = True
    engines = (Engine.tensor,)
    limits = {"K": "pmax", "M": "gemm_stationary_fmax"}

    dst: Any
    stationary: Any
    moving: Any
    accumulate: Any
    tile_position: Any
    tile_size: Any

    written: Array | None = None
    """With `accumulate=None` left open: which elements of `dst` a product has been written to."""
    deferred: bool = False
    """With `accumulate=None` left open: only the run tells, because a loop on the device writes `dst`."""

    def product_shape(self) -> tuple[int, int]:
        """M and N."""
        return self.stationary.free, self.moving.free

    def reads(self) -> list[Access]:
        """The inputs, and `dst` only if it is added to."""
        windows = [a for operand, a in self.accesses() if self.accumulate or not operand.is_output]
        return windows + self.index_windows()

    def resolve(self, builder: Builder) -> None:
        """Decide `accumulate=None` by what products have been written to `dst`."""
        if self.dst.dynamic is not None:
            builder.groups.unsettle(self.dst.buffer)  # `accumulate` was given
            return
        state = builder.groups.state(self.dst)
        if self.accumulate is None and not builder.is_settled(self.dst.buffer):
            self.deferred = True
        elif self.accumulate is None and state == "mixed":
            self.written = builder.groups.snapshot(self.dst)
        elif self.accumulate is None:
            self.accumulate = state == "written"
        elif self.accumulate and state != "written" and builder.groups.is_settled(self.dst.buffer):
            builder.warn("accumulate-unwritten", "warning", self._unwritten(), self.span)
        builder.groups.wrote(self.dst)

    def open_groups(self) -> list[Access]:
        """`dst`, if the run must tell what has been written."""
        return [self.dst] if self.deferred else []

    def _unwritten(self) -> str:
        return (
            f"{self.mnemonic}: accumulate=True adds to PSUM that no matmul has written: {self.dst.describe()}\n"
            f"  found:   no earlier {self.mnemonic} with accumulate=False wrote all of these elements\n"
            "  help:    pass accumulate=False to the first product, or leave `accumulate` out"
        )

    def multiply(self, a: Any, stationary: Array, moving: Array) -> Steps:
        """The calls that write or add stationary.T @ moving, of float32 matrices."""
        moving = yield from _dense(a, moving, apart=stationary)
        stationary = yield from _dense(a, stationary)
        overwrites = self.accumulate is False and _has_dense_rows(a.dst)
        product = a.dst if overwrites else a.scratch(a.dst.shape, np.float32)
        yield np.matmul, (stationary.T, moving, product)
        if self.accumulate:
            yield np.add, (a.dst, product, a.dst)
        elif self.written is not None:
            add_where_written = partial(np.add, where=self.written.reshape(a.dst.shape))
            yield add_where_written, (a.dst, product, product)
            yield np.copyto, (a.dst, product)
        elif self.deferred:
            yield add_where, (a.dst, product, a.written(self.dst))
        elif not overwrites:
            yield np.copyto, (a.dst, product)

    @rule("dst = stationary.T @ moving")
    def product_fits(self, target: Target) -> Fault | None:
        shape = self.product_shape()
        if (self.dst.partitions, self.dst.free) == shape:
            return None
        k = self.stationary.partitions
        return Fault(
            f"dst: {self.dst.describe()}",
            found=f"dst has shape {list(self.dst.shape)}",
            allowed=f"{list(shape)} = [M, N]",
            remedy=f"allocate dst with shape {shape}, or exchange stationary and moving",
            error=errors.OperandShapeError,
            text="dst = stationary.T @ moving, that is dst[M, N] from stationary[K, M] and moving[K, N] with "
            f"K = {k}, M = {shape[0]}, N = {shape[1]}; dst must have shape {list(shape)}",
        )

    @rule("the free size of `moving` is limited")
    def free_size_is_legal(self, target: Target) -> Fault | None:
        most = target.matmul_moving_fmax(self.dst.dtype)
        size = self.product_shape()[1]
        if size <= most:
            return None
        return Fault(
            f"moving: {self.moving.describe()}",
            found=size,
            allowed=f"at most {most} on {target.name} with a {self.dst.dtype} dst",
            remedy=f"split it into tiles of at most {most}",
            error=errors.LimitError,
            text=f"dimension N of `moving` is {size}; {target.name} allows at most {most}",
        )

    @rule("`accumulate` is given where the device decides the place of `dst`")
    def accumulation_is_decided(self, target: Target) -> Fault | None:
        if self.dst.dynamic is None or self.accumulate is not None:
            return None
        return Fault(
            f"dst: {self.dst.describe()}",
            found="accumulate=None with a dynamic place",
            allowed="True or False: what has been written at that place is not known beforehand",
            remedy="pass accumulate=False to replace what is there, True to add to it",
        )

    @rule("tensor indirection uses the whole array: no tiling (semantics rule 43)")
    def offsets_need_all_rows(self, target: Target) -> Fault | None:
        if not self.by_offsets() or not any(self.tile_position or ()):
            return None
        return Fault(
            "tile_position",
            found=tuple(self.tile_position),
            allowed="(0, 0), or none",
            remedy="leave `tile_position` and `tile_size` out",
        )

    @rule("tiling needs `tile_size` and `tile_position`, two integers each")
    def tiling_is_complete(self, target: Target) -> Fault | None:
        size, position = self.tile_size or (), self.tile_position or ()
        if (len(size), len(position)) in ((0, 0), (2, 2)):
            return None
        return Fault(
            "tile_size, tile_position",
            found=f"tile_size={size}, tile_position={position}",
            allowed="both (rows, columns) and (first row, first column), or neither",
            remedy="pass both or leave both out",
        )

    @rule("a tile of the array is a legal part of it and holds the operands")
    def tiling_is_legal(self, target: Target) -> Fault | None:
        operands = (self.stationary.partitions, self.product_shape()[0])
        sides = zip(("rows", "columns"), self.tile_size or (), self.tile_position or (), operands)
        for what, size, start, needed in sides:
            whole = target.pmax if what == "rows" else target.gemm_stationary_fmax
            sizes = [n for n in range(target.matmul_tile_min, whole + 1) if n & (n - 1) == 0]
            if size not in sizes:
                return _tile_fault(
                    "tile_size", f"{size} {what}", f"{' or '.join(map(str, sizes))} on {target.name}"
                )
            if start % size or not 0 <= start < whole:
                allowed = f"a multiple of {size} below {whole}"
                return _tile_fault("tile_position", f"a start at {what} {start}", allowed)
            if needed > size:
                dimension = "K" if what == "rows" else "M"
                return _tile_fault(
                    "tile_size", f"{dimension} = {needed} on {size} {what}", f"{dimension} <= {size}"
                )
        return None


def add_where(dst: Array, product: Array, written: Array) -> None:
    """dst = product, plus what `dst` holds where `written` says so of all bytes."""
    np.add(dst, product, product, where=written.all(axis=-1).reshape(dst.shape))
    np.copyto(dst, product)


def _tile_fault(operand: str, found: str, allowed: str) -> Fault:
    return Fault(
        operand, found, allowed, "choose a tile that holds stationary[K, M], at a multiple of its size"
    )


def _has_dense_rows(array: Array) -> bool:
    return array.shape[-1] <= 1 or array.strides[-1] == array.itemsize


def _dense(a: Any, array: Array, apart: Array | None = None) -> Generator[Any, None, Array]:
    """The array, or a copy of it if BLAS could not read it as it lies, or if it is the memory of `apart`: NumPy takes
    another routine for x.T @ x, with other bits, and whether both operands are one array is no matter of the values."""
    one = apart is not None and array.ctypes.data == apart.ctypes.data
    if not one and _has_dense_rows(array) and array.strides[0] >= array.shape[-1] * array.itemsize:
        return array
    copy: Array = a.scratch(array.shape, array.dtype)
    yield np.copyto, (copy, array)
    return copy
