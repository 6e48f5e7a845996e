"""Whether tensors that a step writes share elements, in themselves or with others. Needs addresses: no fake asks."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor


def shared(written: dict[str, Tensor], read: Tensor) -> str | None:
    """The name of the first that has an element where it, or another one, has one already; "grad" for `read`."""
    for name, tensor in written.items():
        if not is_nested(tensor) and repeats(tensor):
            return name
    for (_, first), (name, second) in combinations({**written, "grad": read}.items(), 2):
        if overlap(first, second):
            return name
    return None


def is_nested(tensor: Tensor) -> bool:
    """Whether each axis steps over all that the finer ones reach: then no element is two."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride < reach:
            return False
        reach += (size - 1) * stride
    return True


def span(tensor: Tensor) -> tuple[int, int]:
    """The addresses of its first byte and of the one behind its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def repeats(tensor: Tensor) -> bool:
    """Whether two of its elements are one."""
    start, stop = span(tensor)
    canvas = torch.zeros(stop - start, dtype=torch.uint8, device="cpu")
    bytes_on(canvas, tensor, start).fill_(1)
    return int(canvas.count_nonzero()) < tensor.numel() * tensor.element_size()


def overlap(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors share a byte: where one lies between the elements of the other, byte by byte."""
    if first.numel() == 0 or second.numel() == 0:
        return False
    (low, high), (start, stop) = span(first), span(second)
    if high <= start or stop <= low:
        return False
    begin = min(low, start)
    canvas = torch.zeros(max(high, stop) - begin, dtype=torch.uint8, device="cpu")
    bytes_on(canvas, first, begin).fill_(1)
    return bool(bytes_on(canvas, second, begin).any())


def bytes_on(canvas: Tensor, tensor: Tensor, begin: int) -> Tensor:
    """The bytes of its elements on a picture of the memory from the address `begin` on."""
    size = tensor.element_size()
    strides = [stride * size for stride in tensor.stride()]
    return canvas.as_strided((*tensor.shape, size), (*strides, 1), tensor.data_ptr() - begin)
