"""View arithmetic, part 2: splitting and merging dimensions, reinterpreting bytes, explicit access patterns.

Pure functions like those of `nki/views.py`, which see for the conventions. A view that the strides cannot express is
an error; nothing is ever copied (semantics rules 30-37).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nki import errors
from nki.ir.program import Shape
from nki.views import View, as_dim, as_index, keep_partitions, permute


def positive_shape(shape: Any, what: str = "shape") -> Shape:
    """A tuple of positive integers."""
    if not isinstance(shape, (tuple, list)):
        raise errors.ArgumentError(
            f"`{what}` must be a tuple of integers, got {type(shape).__name__}",
            operand=what,
            found=f"{shape!r:.80}",
            allowed="a tuple of positive integers",
            remedy=f"write {what}=(rows, columns)",
        )
    sizes = tuple(as_index(size, f"`{what}`") for size in shape)
    for d, size in enumerate(sizes):
        if size < 1:
            raise errors.ShapeError(
                f"dimension {d} of {what} {list(sizes)} is {'zero' if size == 0 else 'negative'}",
                operand=what,
                found=list(sizes),
                allowed="sizes of at least 1",
                remedy="skip empty tensors before calling the kernel"
                if size == 0
                else "pass the size itself",
            )
    return sizes


def expand_dim(view: View, dim: Any, on_chip: bool) -> View:
    """A new dimension of size 1 before dimension `dim`."""
    d = as_dim(dim, len(view.shape) + 1)
    keep_partitions(not on_chip or d > 0, f"expand_dim({d})")
    step = view.shape[d] * view.strides[d] if d < len(view.shape) else 1
    return View(
        (*view.shape[:d], 1, *view.shape[d:]), (*view.strides[:d], step, *view.strides[d:]), view.offset
    )


def squeeze_dim(view: View, dim: Any, on_chip: bool) -> View:
    """A dimension of size 1 dropped."""
    d = as_dim(dim, len(view.shape))
    keep_partitions(not on_chip or d > 0, f"squeeze_dim({d})")
    least = 2 if on_chip else 1
    if view.shape[d] != 1 or len(view.shape) <= least:
        raise errors.ShapeError(
            f"squeeze_dim: dimension {d} of {list(view.shape)} cannot be dropped",
            operand="dim",
            found=f"size {view.shape[d]} of {len(view.shape)} dimensions",
            allowed=f"a dimension of size 1, with at least {least} left",
            remedy="select one element with an index, or keep the dimension",
        )
    return View(_without(view.shape, d), _without(view.strides, d), view.offset)


def _without(items: Shape, at: int) -> Shape:
    return (*items[:at], *items[at + 1 :])


def reshape_dim(view: View, dim: Any, shape: Any, on_chip: bool) -> View:
    """One dimension split; one of the new sizes may be -1."""
    d = as_dim(dim, len(view.shape))
    sizes = _inferred(shape, view.shape[d], f"reshape_dim({d})")
    keep_partitions(not on_chip or d > 0 or len(sizes) == 1, f"reshape_dim({d})")
    steps: list[int] = []
    step = view.strides[d]
    for size in reversed(sizes):
        steps.insert(0, step)
        step *= size
    return View(
        (*view.shape[:d], *sizes, *view.shape[d + 1 :]),
        (*view.strides[:d], *steps, *view.strides[d + 1 :]),
        view.offset,
    )


def _inferred(shape: Any, total: int, what: str) -> Shape:
    """Sizes whose product is `total`, with at most one -1 worked out."""
    sizes = [as_index(size, "`shape`") for size in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    known = prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known > 0 and total % known == 0:
        sizes[sizes.index(-1)] = total // known
    if min(sizes, default=0) < 1 or prod(sizes) != total:
        raise errors.ShapeError(
            f"{what}: size {total} cannot be split into {sizes}",
            operand="shape",
            found=sizes,
            allowed=f"positive sizes with product {total}, at most one of them -1",
            remedy="make the product agree with the size of the dimension",
        )
    return tuple(sizes)


def flatten_dims(view: View, start_dim: Any, end_dim: Any, on_chip: bool) -> View:
    """Dimensions start_dim .. end_dim (inclusive) merged into one."""
    first = as_dim(start_dim, len(view.shape), "start_dim")
    last = as_dim(end_dim, len(view.shape), "end_dim")
    if last < first:
        raise errors.ShapeError(
            f"flatten_dims: start_dim {first} lies behind end_dim {last}",
            found=f"{first}..{last}",
            allowed="start_dim <= end_dim (both included)",
            remedy="swap the two",
        )
    keep_partitions(not on_chip or first > 0 or first == last, f"flatten_dims({first}, {last})")
    shape = view.shape[first : last + 1]
    steps = restride(shape, view.strides[first : last + 1], (prod(shape),))
    if steps is None:
        raise _not_contiguous(view, f"flatten_dims({first}, {last})")
    return View(
        (*view.shape[:first], prod(shape), *view.shape[last + 1 :]),
        (*view.strides[:first], *steps, *view.strides[last + 1 :]),
        view.offset,
    )


def _not_contiguous(view: View, what: str) -> errors.NkiError:
    return errors.ShapeError(
        f"{what}: the elements do not lie one behind the other, so no view has this shape",
        found=f"shape {list(view.shape)} with strides {list(view.strides)}",
        allowed="dimensions that are contiguous in memory",
        remedy="copy the view into a fresh tile first (nisa.tensor_copy or nisa.dma_copy)",
    )


def restride(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Strides that give the elements of (shape, strides) the shape `new`, in row-major order; None if there are none.

    Dimensions are matched in groups of equal product; within a group the old strides must be nested.
    """
    old = [(n, s) for n, s in zip(shape, strides) if n != 1]
    steps: list[int] = []
    i = j = 0
    while i < len(old) and j < len(new):
        i_end, j_end = i + 1, j + 1
        have, want = old[i][0], new[j]
        while have != want:
            if want < have:
                want *= new[j_end]
                j_end += 1
            else:
                have *= old[i_end][0]
                i_end += 1
        if any(old[k][1] != old[k + 1][0] * old[k + 1][1] for k in range(i, i_end - 1)):
            return None
        step = old[i_end - 1][1]
        group: list[int] = []
        for size in reversed(new[j:j_end]):
            group.insert(0, step)
            step *= size
        steps += group
        i, j = i_end, j_end
    return (*steps, *[1] * (len(new) - j))


def reshape(view: View, shape: Any, on_chip: bool) -> View:
    """The same elements in row-major order under another shape."""
    given = list(shape) if isinstance(shape, (tuple, list)) else []
    if all(isinstance(size, int) for size in given) and given.count(-1) == 1:
        known = prod(size for size in given if size != -1)
        full = [prod(view.shape) // max(known, 1) if size == -1 else size for size in given]
        raise errors.ShapeError(
            "reshape needs every size; only reshape_dim works out a -1",
            operand="shape",
            found=given,
            allowed="positive sizes",
            remedy=f"write reshape({tuple(full)})",
        )
    sizes = positive_shape(shape)
    if prod(sizes) != prod(view.shape):
        raise errors.ShapeError(
            f"reshape: {list(view.shape)} has {prod(view.shape)} elements, {list(sizes)} has {prod(sizes)}",
            operand="shape",
            found=list(sizes),
            allowed=f"sizes with product {prod(view.shape)}",
            remedy="keep the number of elements",
        )
    if on_chip:
        keep_partitions(sizes[0] == view.shape[0], f"reshape({sizes})")
        if len(sizes) < 2:
            sizes = (*sizes, 1)
        steps = restride(view.shape[1:], view.strides[1:], sizes[1:])
        steps = None if steps is None else (view.strides[0], *steps)
    else:
        steps = restride(view.shape, view.strides, sizes)
    if steps is None:
        raise _not_contiguous(view, f"reshape({sizes})")
    return View(sizes, steps, view.offset)


def rearrange(view: View, source: Any, result: Any, fixed: dict[str, int] | None, on_chip: bool) -> View:
    """Split, reorder and merge dimensions by name (einops with tuples in place of strings)."""
    before, after = _groups(source), _groups(result)
    names = [name for group in before for name in group]
    if sorted(names) != sorted(name for group in after for name in group) or len(set(names)) != len(names):
        raise _pattern_error("both patterns must hold the same names, each once", before, after)
    if len(before) != len(view.shape):
        raise _pattern_error(
            f"the tensor has {len(view.shape)} dimensions, src_pattern {len(before)}", before, after
        )
    fixed = fixed or {}
    unknown = sorted(set(fixed) - set(names))
    if unknown:
        raise _pattern_error(f"fixed_sizes names {unknown[0]!r}, which no pattern has", before, after)
    dim = 0
    for group in before:
        if len(group) > 1 or group[0] in fixed:
            view = reshape_dim(view, dim, tuple(fixed.get(name, -1) for name in group), on_chip)
        dim += len(group)
    order = [names.index(name) for group in after for name in group]
    if order != list(range(len(names))):
        view = permute(view, order, on_chip)
    for dim, group in enumerate(after):
        if len(group) > 1:
            view = flatten_dims(view, dim, dim + len(group) - 1, on_chip)
    return view


def _groups(pattern: Any) -> list[tuple[str, ...]]:
    if isinstance(pattern, str) or not isinstance(pattern, Sequence):
        raise _pattern_error("a pattern is a tuple of names and tuples of names", pattern, pattern)
    groups = [tuple(item) if isinstance(item, (tuple, list)) else (item,) for item in pattern]
    if not all(group and all(isinstance(name, str) for name in group) for group in groups):
        raise _pattern_error("a pattern is a tuple of names and tuples of names", pattern, pattern)
    return groups


def _pattern_error(what: str, source: Any, result: Any) -> errors.NkiError:
    return errors.ShapeError(
        f"rearrange: {what}",
        found=f"{source} -> {result}" if source is not result else f"{source!r:.80}",
        allowed="e.g. ('p', ('h', 'w')) -> ('p', 'w', 'h')",
        remedy="name every dimension once in each pattern",
    )
