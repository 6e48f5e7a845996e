"""`NkiTensor`: a view of a buffer. Every view operation is an access pattern; data moves only in instructions.

The class adds names, places and limits to the arithmetic of `nki/views.py`, `nki/reshaping.py` and
`nki/access_patterns.py`. What is not allowed on a tile while staging (operators, truth values, iteration) is refused
in `nki/tensor_refusals.py`. An instruction takes the `access` of a tensor as its operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki import errors, indirect_views, reshaping, views
from nki.access_patterns import storage_access
from nki.dtypes import DType, as_dtype
from nki.enums import MemoryRegion
from nki.indices import is_one_value
from nki.ir import builder
from nki.ir.program import Access, Buffer, Shape
from nki.regions import as_region, hbm, private_hbm, psum, sbuf, shared_hbm
from nki.registers import VirtualRegister
from nki.span import capture
from nki.target import get_target
from nki.tensor_refusals import Refusals
from nki.tensor_values import assign, show, values_of

__all__ = ["NkiTensor", "as_region", "hbm", "private_hbm", "psum", "sbuf", "shared_hbm"]

_new = object.__new__


class NkiTensor(Refusals):
    """A strided view of storage in SBUF, PSUM or HBM.

    shape, strides (elements), offset (elements from the start of the storage), dtype, buffer (the memory region),
    name, ndim and size describe it. On chip, dimension 0 is the partition dimension.
    """

    __slots__ = ("_label", "access")

    access: Access
    _label: str | None

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        storage: Any,
        buffer: MemoryRegion | str = sbuf,
        name: str = "",
    ) -> None:
        region, kind = as_region(buffer), as_dtype(dtype)
        sizes = reshaping.positive_shape(shape)
        if storage is None:
            storage = Buffer(name or "placeholder", sizes, kind, region, role="placeholder", label=name)
        if not isinstance(storage, Buffer) or storage.memory is not region:
            raise errors.ArgumentError(
                f"`storage` must be a buffer in {region} or None",
                operand="storage",
                found=storage.describe() if isinstance(storage, Buffer) else f"{storage!r:.80}",
                allowed=f"a buffer in {region}",
                remedy="allocate tensors with nl.ndarray",
                span=capture(),
            )
        self.access = storage_access(Access(storage, kind, 0, storage.shape, ()), sizes)
        self._label = name or None

    @classmethod
    def _of(cls, access: Access, name: str = "") -> NkiTensor:
        """The tensor that shows `access`."""
        self = _new(cls)
        self.access = access
        self._label = name or None
        return self

    @property
    def shape(self) -> Shape:
        """Sizes of the dimensions."""
        return self.access.shape

    @property
    def strides(self) -> Shape:
        """Steps of the dimensions, in elements."""
        return self.access.strides

    @property
    def offset(self) -> int:
        """Storage element of the first element."""
        return self.access.offset

    @property
    def name(self) -> str:
        """The user's name of the tensor, if it has one."""
        return self._label or self.access.buffer.label

    @property
    def dtype(self) -> DType:
        """Type of the elements; equal to its documented name."""
        return self.access.dtype

    @property
    def buffer(self) -> MemoryRegion:
        """Memory region the storage lives in."""
        return self.access.buffer.memory

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.access.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.access.size

    def is_contiguous(self) -> bool:
        """Whether the view is dense and row-major; on chip, within each partition."""
        return self.access.is_contiguous()

    def get_pattern(self) -> list[list[int]]:
        """The view as [[step, count], ...], the form that `ap` takes."""
        return [[step, count] for step, count in zip(self.access.strides, self.access.shape)]

    def is_indirect(self) -> bool:
        """Whether the place of the view depends on a value of the device."""
        return self.access.dynamic is not None

    def __getitem__(self, key: Any) -> NkiTensor:
        access = self.access
        buffer = access.buffer
        region = buffer.memory
        try:
            shape, strides, offset = views.subscript(
                access.shape, access.strides, access.offset, key, region is sbuf or region is psum
            )
            if access.dynamic is not None:
                return NkiTensor._of(indirect_views.viewed(access, _subscript, key, region.on_chip))
        except errors.NkiError as error:
            return self._device_subscript(key, error)
        view = _new(NkiTensor)
        view.access = Access(buffer, access.dtype, offset, shape, strides)
        view._label = None
        return view

    def _device_subscript(self, key: Any, error: errors.NkiError) -> NkiTensor:
        """The view for a subscript that is no plain one: with an index of the device, or an error."""
        try:
            if not indirect_views.has_device_index(key):
                raise error
            return NkiTensor._of(indirect_views.subscripted(self.access, key))
        except errors.NkiError as found:
            raise self._placed(found, 4) from None

    def __setitem__(self, key: Any, value: Any) -> None:
        assign(self[key], value)

    def _placed(self, error: errors.NkiError, depth: int) -> errors.NkiError:
        access = self.access
        error.message = f"`{self.name or access.buffer.name}`: {error.message}"
        error.notes = (*error.notes, f"tensor:  {access.describe()}")
        return error.at(capture(depth))

    def _view(self, function: Callable[..., views.View], *args: Any) -> NkiTensor:
        """The view that `function` makes of shape, strides and offset."""
        return self._made(indirect_views.viewed, function, *args)

    def _made(self, function: Callable[..., Access], *args: Any) -> NkiTensor:
        """The view that `function` makes of the access."""
        try:
            made = function(self.access, *args)
            _check_rank(made.shape, self.access.shape)
        except errors.NkiError as error:
            raise self._placed(error, 3) from None
        return NkiTensor._of(made)

    def permute(self, dims: tuple[int, ...]) -> NkiTensor:
        """Dimensions in the order `dims`; on chip dims[0] is 0."""
        return self._view(views.permute, dims, self.buffer.on_chip)

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Dimension `dim`, of size 1, repeated `size` times."""
        return self._view(views.broadcast, dim, size, self.buffer.on_chip)

    def expand_dim(self, dim: int) -> NkiTensor:
        """A new dimension of size 1 at position `dim`."""
        return self._view(reshaping.expand_dim, dim, self.buffer.on_chip)

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Dimension `dim`, of size 1, dropped."""
        return self._view(reshaping.squeeze_dim, dim, self.buffer.on_chip)

    def reshape_dim(self, dim: int, shape: tuple[int, ...]) -> NkiTensor:
        """Dimension `dim` split into `shape`; one size may be -1."""
        return self._view(reshaping.reshape_dim, dim, shape, self.buffer.on_chip)

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Dimensions start_dim .. end_dim, both included, merged."""
        return self._view(reshaping.flatten_dims, start_dim, end_dim, self.buffer.on_chip)

    def reshape(self, shape: tuple[int, ...]) -> NkiTensor:
        """The same elements under another shape; on chip the number of partitions stays."""
        return self._view(reshaping.reshape, shape, self.buffer.on_chip)

    def rearrange(
        self,
        src_pattern: tuple[Any, ...],
        dst_pattern: tuple[Any, ...],
        fixed_sizes: dict[str, int] | None = None,
    ) -> NkiTensor:
        """Split, reorder and merge by names: `t.rearrange(('p', ('h', 'w')), ('p', 'w', 'h'), {'h': 4})`."""
        return self._view(reshaping.rearrange, src_pattern, dst_pattern, fixed_sizes, self.buffer.on_chip)

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Elements start <= i < end of one dimension, every `step`-th."""
        return self._view(views.slice_dim, dim, start, end, step)

    def select(self, dim: int, index: int | NkiTensor | VirtualRegister) -> NkiTensor:
        """One element of a dimension, which is dropped where `t[..., index, ...]` would drop it.

        index: a number, or a register or a tile with one value, which the device reads.
        """
        if is_one_value(index):
            return self._made(indirect_views.selected, dim, index)
        return self._view(views.select_dim, dim, index, self.buffer.on_chip)

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Rows of an HBM tensor chosen on the device: row p of the view is the one that vector_offset[p] names."""
        return self._made(indirect_views.rows_selected, dim, vector_offset)

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Tensor indirection (trn3): elements of each partition at offsets that stand in `index`, [P, num_elem]."""
        return self._made(indirect_views.column_view, index, num_elem)

    def ap(
        self,
        pattern: list[list[int]],
        offset: int | None = None,
        scalar_offset: NkiTensor | VirtualRegister | None = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: DType | None = None,
    ) -> NkiTensor:
        """An explicit [[step, count], ...] pattern on the storage; `offset` counts from its start.

        scalar_offset: an index along dimension `indirect_dim` of this tensor that moves the pattern.
        vector_offset: an index along dimension 0 for each row of the pattern, whose first step is ignored then.
        """
        moving = (scalar_offset, vector_offset, indirect_dim)
        return self._made(indirect_views.pattern_view, pattern, offset, dtype, *moving)

    def view(self, dtype: DType) -> NkiTensor:
        """The same bytes as another dtype; the last dimension is rescaled."""
        return self._made(indirect_views.reinterpreted, dtype)

    reinterpret_cast = view

    def numpy(self) -> Any:
        """The values as a NumPy array (a copy), in eager mode."""
        return values_of(self.access)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        values = values_of(self.access)
        return values if dtype is None else values.astype(dtype)

    def __repr__(self) -> str:
        return show(self.access, self.name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NkiTensor):
            return self.access is other.access or self.access == other.access
        if isinstance(other, (int, float)) and builder.current() is not None:
            raise self._no_comparison("==")
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.access)


def _subscript(view: views.View, key: Any, on_chip: bool) -> views.View:
    return views.View(*views.subscript(*view, key, on_chip))


def _check_rank(shape: Shape, before: Shape) -> None:
    """Rule 26: a view has at most five dimensions. Arguments with more may be looked at, but not be given more."""
    current = builder.current()
    most = (current.target if current else get_target()).tensor_max_dims
    if len(shape) > max(most, len(before)):
        raise errors.ShapeError(
            f"a view can have {most} dimensions, not {len(shape)}",
            found=list(shape),
            allowed=f"at most {most} dimensions",
            remedy="merge neighbouring dimensions, or select an index first",
        )
