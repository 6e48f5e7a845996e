"""What a kernel returns: whole tensors that outlive it, the same ones on every core."""

from __future__ import annotations

from typing import Any

from nki import errors
from nki.enums import MemoryRegion
from nki.ir.program import Buffer, Program, Shape
from nki.ir.scopes import check_tensor
from nki.tensor import NkiTensor


def set_results(
    program: Program, result: Any, core: int, earlier: list[tuple[Buffer, Shape]]
) -> list[tuple[Buffer, Shape]]:
    """Note what the kernel returned, each with its shape; all cores return the same as the `earlier` ones."""
    several = isinstance(result, (tuple, list))
    form = "none" if result is None else "tuple" if several else "one"
    items = () if result is None else tuple(result) if several else (result,)
    found: list[tuple[Buffer, Shape]] = []
    for position, item in enumerate(items):
        found.append(_result(program, item, position if several else None, found))
    if core and (form != program.result_form or found != earlier):
        raise errors.ReturnError(
            f"core {core} returns other tensors than core 0",
            found=_described(found),
            allowed=_described(earlier),
            remedy="return the same tensors of shared HBM on every core",
            span=program.span,
        )
    program.result_form, program.results = form, [buffer for buffer, _ in found]
    return found


def _described(returned: list[tuple[Buffer, Shape]]) -> str:
    return ", ".join(f"`{b.label or b.name}` {list(shape)} {b.dtype}" for b, shape in returned) or "nothing"


def _result(
    program: Program, item: Any, position: int | None, before: list[tuple[Buffer, Shape]]
) -> tuple[Buffer, Shape]:
    what = "the returned value" if position is None else f"returned value {position}"
    if not isinstance(item, NkiTensor):
        raise errors.ReturnError(
            f"{what} is a {type(item).__name__}, not a tensor",
            found=f"{item!r:.80}" if isinstance(item, (int, float, str)) else type(item).__name__,
            allowed="a tensor allocated with buffer=nl.shared_hbm, or a tuple of them",
            remedy="store the result into an output tensor and return that",
            span=program.span,
        )
    _check_memory(program, what, item)
    buffer = item.access.buffer
    return buffer, _shape(program, what, item, before)


def _check_memory(program: Program, what: str, item: NkiTensor) -> None:
    """Results lie in shared HBM and are written by the kernel; arguments come back as themselves."""
    access = item.access
    buffer = access.buffer
    try:
        check_tensor(buffer, [], buffer.core, what)
    except errors.NkiError as error:
        raise error.at(program.span) from None
    if buffer.memory is not MemoryRegion.shared_hbm and buffer.role != "argument":
        raise errors.ReturnError(
            f"{what} is not in shared HBM: {access.describe()}",
            operand=buffer.label or buffer.name,
            found=buffer.memory.value,
            allowed="shared_hbm",
            remedy="out = nl.ndarray(shape, dtype, buffer=nl.shared_hbm); nisa.dma_copy(dst=out, src=...); return out",
            span=program.span,
        )
    if buffer.role == "constant":
        raise errors.ReturnError(
            f"{what} is a constant: {access.describe()}",
            operand=buffer.label or buffer.name,
            found="a constant of the program",
            allowed="tensors that the kernel writes, and arguments",
            remedy="copy it into an output tensor and return that",
            span=program.span,
        )


def _shape(program: Program, what: str, item: NkiTensor, before: list[tuple[Buffer, Shape]]) -> Shape:
    """The shape in which a whole tensor is returned, which is the same everywhere."""
    access = item.access
    buffer = access.buffer
    if (
        access.size != buffer.nbytes // buffer.dtype.itemsize
        or not access.dense()
        or access.dtype != buffer.dtype
    ):
        raise errors.ReturnError(
            f"{what} is a view of part of {buffer.describe()}",
            operand=buffer.label or buffer.name,
            found=f"shape {list(access.shape)}, strides {list(access.strides)}, offset {access.offset}",
            allowed="whole tensors",
            remedy="return the tensor itself, or copy the part into an output of its own",
            span=program.span,
        )
    shape = buffer.shape if buffer.role == "argument" else access.shape
    other = next((shown for known, shown in before if known is buffer and shown != shape), None)
    if other is not None:
        raise errors.ReturnError(
            f"{what} is {buffer.describe()}, which is also returned under another shape",
            operand=buffer.label or buffer.name,
            found=f"shapes {list(other)} and {list(shape)}",
            allowed="each output tensor in one shape",
            remedy="return it once and reshape the array that the kernel gives back",
            span=program.span,
        )
    return shape
