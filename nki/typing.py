"""Annotations for kernel parameters: `nki.typing.tensor[128, 512]` and `nki.typing.mutable_tensor`.

They document; nothing is checked against them. `mutable_tensor` marks an input that the kernel writes.
"""

from __future__ import annotations

from typing import Any


class tensor:
    """A tensor, with its shape in brackets: `tensor[p, f]`. Any integers (or names) may stand there."""

    shape: tuple[Any, ...] = ()

    def __class_getitem__(cls, shape: Any) -> Any:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        text = ", ".join(str(size) for size in sizes)
        return type(f"{cls.__name__}[{text}]", (cls,), {"shape": sizes, "__doc__": cls.__doc__})


class mutable_tensor(tensor):
    """A tensor that the kernel writes in place; it may carry a shape like `tensor`."""
