"""Kernel arguments: telling tensors from constants, crossing between frameworks and NumPy, and the cache key.

NumPy, PyTorch and JAX tensors may stand anywhere in an argument, also inside tuples, lists, dicts and NKI objects;
all else is a compile-time constant. Narrow torch types cross through integer views of the same width, without a copy.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from nki import errors
from nki.dtypes import DType, as_dtype


@dataclass
class Leaf:
    """One tensor argument: its name, NKI dtype, a row-major array of its values, and the caller's object."""

    name: str
    dtype: DType
    array: np.ndarray
    original: Any

    @property
    def is_torch(self) -> bool:
        """Whether the caller passed a torch tensor."""
        return _is_torch(self.original)

    def write_back(self, values: np.ndarray) -> None:
        """Copy values into the caller's tensor."""
        if self.is_torch:
            self.original.copy_(to_torch(values).reshape(self.original.shape))
        else:
            np.copyto(self.original, values.reshape(self.original.shape))


@dataclass(frozen=True)
class _Slot:
    index: int


@dataclass
class Arguments:
    """The arguments of one call: tensors taken out, the rest in place."""

    leaves: list[Leaf] = field(default_factory=list)
    structure: dict[str, Any] = field(default_factory=dict)
    key: tuple[Any, ...] | None = ()

    def filled(self, tensors: list[Any]) -> dict[str, Any]:
        """The arguments with `tensors` in place of the caller's."""
        return {name: _fill(value, tensors) for name, value in self.structure.items()}


def collect(values: dict[str, Any]) -> Arguments:
    """Take the tensors out of bound arguments and make the cache key (`None` if some constant cannot be compared)."""
    arguments = Arguments()
    for name, value in values.items():
        arguments.structure[name] = _take(value, name, arguments.leaves)
    try:
        constants = tuple((name, freeze(value)) for name, value in arguments.structure.items())
        tensors = tuple((leaf.array.shape, leaf.dtype) for leaf in arguments.leaves)
        arguments.key = (tensors, constants)
        hash(arguments.key)
    except TypeError:
        arguments.key = None
    return arguments


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_tensor(value: Any) -> bool:
    if isinstance(value, np.ndarray) or _is_torch(value):
        return True
    return type(value).__module__.split(".")[0] in ("jax", "jaxlib") and hasattr(value, "__array__")


def _take(value: Any, name: str, leaves: list[Leaf]) -> Any:
    kind = type(value)
    if kind in (int, float, str, bool, type(None)):
        return value
    if _is_tensor(value):
        leaves.append(_leaf(value, name))
        return _Slot(len(leaves) - 1)
    if isinstance(value, (tuple, list)):
        items = [_take(item, f"{name}_{i}", leaves) for i, item in enumerate(value)]
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    if kind is dict:
        return {key: _take(item, f"{name}_{key}", leaves) for key, item in value.items()}
    if hasattr(value, "__dict__") and not isinstance(value, (type, Enum)) and not callable(value):
        before = len(leaves)
        inner = {key: _take(item, f"{name}_{key}", leaves) for key, item in vars(value).items()}
        if len(leaves) > before:
            value = copy.copy(value)
            for key, item in inner.items():
                object.__setattr__(value, key, item)
    return value


def _fill(value: Any, tensors: list[Any]) -> Any:
    kind = type(value)
    if kind is _Slot:
        return tensors[value.index]
    if isinstance(value, (tuple, list)):
        items = [_fill(item, tensors) for item in value]
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    if kind is dict:
        return {key: _fill(item, tensors) for key, item in value.items()}
    if hasattr(value, "__dict__") and any(_has_slot(item) for item in vars(value).values()):
        value = copy.copy(value)
        for key, item in vars(value).items():
            object.__setattr__(value, key, _fill(item, tensors))
    return value


def _has_slot(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_has_slot(item) for item in value)
    if isinstance(value, dict):
        return any(_has_slot(item) for item in value.values())
    return isinstance(value, _Slot)


def _leaf(value: Any, name: str) -> Leaf:
    try:
        dtype = as_dtype(value.dtype)
        if isinstance(value, np.ndarray):
            array = value
        else:
            array = from_torch(value) if _is_torch(value) else np.asarray(value)
    except errors.DtypeError as error:
        raise errors.DtypeError(
            f"argument `{name}`: {error.message}",
            operand=name,
            found=error.found,
            allowed=error.allowed,
            remedy=error.remedy,
        ) from None
    if array.ndim == 0:
        array = array.reshape(1)
    if 0 in array.shape:
        raise errors.ShapeError(
            f"argument `{name}` has no elements",
            operand=name,
            found=f"shape {list(array.shape)}",
            allowed="at least one element in every dimension",
            remedy="do not launch the kernel on empty tensors",
        )
    return Leaf(name, dtype, np.ascontiguousarray(array), value)


def from_torch(tensor: Any) -> np.ndarray:
    """A NumPy array on the tensor's memory (bf16 and fp8 keep their type); a copy only where strides do not fit."""
    import torch

    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise errors.ArgumentError(
            "a kernel takes dense tensors on the CPU",
            found=f"{tensor.layout} tensor on {tensor.device}",
            allowed="strided tensors on the cpu device",
            remedy="call .cpu() or .to_dense() first",
        )
    tensor = tensor.detach().contiguous()
    dtype = as_dtype(tensor.dtype)
    same_width = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    if dtype.numpy.isbuiltin == 1:
        return np.asarray(tensor.numpy())
    integers = tensor.view(same_width[dtype.itemsize]).numpy()
    return np.asarray(integers).view(dtype.numpy)


def to_torch(array: np.ndarray) -> Any:
    """A torch tensor on the array's memory."""
    import torch

    array = np.ascontiguousarray(array)
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    integers = torch.from_numpy(array.view({1: np.uint8, 2: np.int16, 4: np.int32}[array.itemsize]))
    kind = getattr(torch, as_dtype(array.dtype), None)
    return integers if kind is None else integers.view(kind)


def freeze(value: Any) -> Any:
    """A hashable stand-in for a constant that is equal exactly when the constant is. TypeError if there is none."""
    kind = type(value)
    if value is None or kind in (int, str, bool, bytes, complex, _Slot):
        return (kind, value)
    if kind is float:
        return (kind, value.hex() if value == value else "nan")
    if isinstance(value, (tuple, list)):
        return (kind, tuple(freeze(item) for item in value))
    if isinstance(value, dict):
        return (kind, tuple((freeze(key), freeze(item)) for key, item in value.items()))
    if isinstance(value, (set, frozenset)):
        return (kind, frozenset(freeze(item) for item in value))
    if isinstance(value, np.generic):
        return (kind, value.dtype.str, value.tobytes())
    if isinstance(value, (DType, Enum, np.dtype, type)) or isinstance(value, Callable):  # type: ignore[arg-type]
        hash(value)
        return value
    if hasattr(value, "__dict__"):
        return (kind, tuple((key, freeze(item)) for key, item in sorted(vars(value).items())))
    raise TypeError(f"a {kind.__name__} cannot be compared")
