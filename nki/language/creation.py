"""Making tensors: `ndarray` declares storage, the others fill it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nki import errors
from nki.dtypes import DType, as_dtype
from nki.enums import MemoryRegion
from nki.ir import builder
from nki.ir.program import Access, Shape
from nki.language.instructions import nisa
from nki.language.memory import sbuf, target
from nki.reshaping import positive_shape
from nki.span import capture
from nki.tensor import NkiTensor, as_region
from nki.views import as_index


class _MakesTensors(type):
    """The class of `ndarray`: calling it makes an `NkiTensor`, and an `NkiTensor` counts as an instance of it."""

    def __call__(
        cls,
        shape: Any,
        dtype: Any,
        buffer: Any = sbuf,
        name: str = "",
        address: tuple[int, int] | None = None,
    ) -> NkiTensor:
        return _declare(shape, dtype, buffer, name, address)

    __call__.__qualname__ = "ndarray"  # what Python says in errors about arguments

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, NkiTensor)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, NkiTensor)


class ndarray(NkiTensor, metaclass=_MakesTensors):
    """A new tensor with no content yet; in annotations, the type of tensors.

    On chip, shape[0] counts partitions. `name` is for schedules and profiles. `address` places the tensor at
    (first partition, byte offset in the partition); without it the allocator does. Tensors may be placed on top of
    each other.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            shape: Any,
            dtype: Any,
            buffer: Any = sbuf,
            name: str = "",
            address: tuple[int, int] | None = None,
        ) -> None: ...


def _declare(shape: Any, dtype: Any, buffer: Any, name: Any, address: Any) -> NkiTensor:
    current = builder.require("nl.ndarray")
    try:
        region = as_region(buffer)
        sizes, kind = checked_shape(shape, region), as_dtype(dtype)
        if not isinstance(name, str):
            raise errors.ArgumentError(
                f"`name` must be a string, got {type(name).__name__}",
                operand="name",
                found=f"{name!r:.80}",
                allowed="a string",
                remedy="pass name='my_tile', and the address as address=(partition, byte)",
            )
        place = None if address is None else _checked_address(address, sizes, kind, region)
    except errors.NkiError as error:
        error.message = f"nl.ndarray: {error.message}"
        raise error.at(capture()) from None
    return NkiTensor._of(Access.whole(current.buffer(sizes, kind, region, label=name, address=place)))


def checked_shape(shape: Any, region: MemoryRegion) -> Shape:
    """The sizes of a new tensor. A single number on chip is one element of one partition."""
    sizes = positive_shape(shape)
    machine = target()
    if len(sizes) > machine.tensor_max_dims or not sizes:
        raise errors.ShapeError(
            f"a tensor has 1 to {machine.tensor_max_dims} dimensions, not {len(sizes)}",
            operand="shape",
            found=list(sizes),
            allowed=f"at most {machine.tensor_max_dims} dimensions",
            remedy="merge dimensions, or keep a Python list of smaller tensors",
        )
    if not region.on_chip:
        return sizes
    if sizes == (1,):
        return (1, 1)
    if len(sizes) < 2:
        raise errors.ShapeError(
            f"a tensor in {region} has at least two dimensions: partitions and free elements",
            operand="shape",
            found=list(sizes),
            allowed="(partitions, elements, ...)",
            remedy=f"write ({sizes[0]}, 1) for one element in each of {sizes[0]} partitions, or (1, {sizes[0]})",
        )
    if sizes[0] > machine.pmax:
        raise errors.PartitionLimitError(
            f"partition dimension {sizes[0]} exceeds maximum {machine.pmax}",
            operand="shape",
            found=f"{list(sizes)} in {region}",
            allowed=f"at most {machine.pmax} partitions on {machine.name}",
            remedy=f"split dimension 0 into tiles of at most {machine.pmax} partitions",
        )
    return sizes


def _checked_address(address: Any, shape: Shape, dtype: DType, region: MemoryRegion) -> tuple[int, int]:
    """(partition, byte offset) inside the memory; in PSUM at the start of a bank (rule 48)."""
    machine = target()
    if not isinstance(address, (tuple, list)) or len(address) != 2 or not region.on_chip:
        raise errors.ArgumentError(
            "`address` is a pair (partition, byte offset) of an on-chip tensor",
            operand="address",
            found=f"{address!r:.80} in {region}",
            allowed="two integers, with buffer=nl.sbuf or nl.psum",
            remedy="leave `address` out: the allocator places the tensor",
        )
    partition, byte = (as_index(value, "`address`") for value in address)
    in_psum = region is MemoryRegion.psum
    room = machine.psum_partition_bytes if in_psum else machine.sbuf_fmax_bytes
    row = dtype.itemsize
    for size in shape[1:]:
        row *= size
    if partition < 0 or partition + shape[0] > machine.pmax or byte < 0 or byte + row > room:
        raise errors.CapacityError(
            f"the tensor does not fit {region} at address {(partition, byte)}",
            operand="address",
            found=f"partitions {partition}..{partition + shape[0] - 1}, bytes {byte}..{byte + row - 1}",
            allowed=f"partitions 0..{machine.pmax - 1}, bytes 0..{room - 1} on {machine.name}",
            remedy="the offset counts bytes of one partition; choose a lower one",
        )
    if in_psum and byte % machine.psum_bank_bytes:
        raise errors.LimitError(
            f"a tensor in psum starts at a bank, byte {byte} lies inside one",
            operand="address",
            found=f"byte {byte}",
            allowed=f"multiples of {machine.psum_bank_bytes}",
            remedy=f"use address=({partition}, {byte - byte % machine.psum_bank_bytes})",
        )
    return partition, byte


def full(shape: Any, fill_value: Any, dtype: Any, buffer: Any = sbuf, name: str = "") -> NkiTensor:
    """A new tensor filled with one value; in HBM by DMA from a filled SBUF tile."""
    out = ndarray(shape, dtype, buffer, name)
    if out.buffer.on_chip:
        nisa.memset(out, fill_value)
    else:
        _fill_hbm(out, fill_value)
    return out


def _fill_hbm(out: NkiTensor, value: Any) -> None:
    machine = target()
    flat = out.reshape((out.size,))
    columns = max(1, out.size // machine.pmax)
    width = min(columns, machine.psum_bank_fmax_bytes // out.dtype.itemsize)
    tile = ndarray((machine.pmax if out.size >= machine.pmax else 1, width), out.dtype, sbuf, "fill")
    nisa.memset(tile, value)
    done = 0
    if out.size >= machine.pmax:
        done = machine.pmax * columns
        rows = flat[0:done].reshape((machine.pmax, columns))
        for start in range(0, columns, width):
            part = rows[:, start : min(start + width, columns)]
            nisa.dma_copy(dst=part, src=tile[:, 0 : part.shape[1]])
    while done < out.size:
        part = flat[done : min(done + width, out.size)]
        nisa.dma_copy(dst=part, src=tile[0:1, 0 : part.size])
        done += part.size


def zeros(shape: Any, dtype: Any, buffer: Any = sbuf, name: str = "") -> NkiTensor:
    """A new tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Any, dtype: Any, buffer: Any = sbuf, name: str = "") -> NkiTensor:
    """A new tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """Zeros with the shape and dtype of `x`, in SBUF unless `buffer` says otherwise."""
    return zeros(x.shape, x.dtype if dtype is None else dtype, sbuf if buffer is None else buffer, name)


def empty_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """A new tensor without content, with the shape, dtype and buffer of `x`."""
    return ndarray(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)
