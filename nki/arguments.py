"""Kernel arguments: telling tensors from constants, crossing between frameworks and NumPy, and the cache key.

NumPy, PyTorch and JAX tensors may stand anywhere in an argument, also inside tuples, lists, dicts and NKI objects;
all else is a compile-time constant. Narrow torch types cross through integer views of the same width, without a copy.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import sys
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from nki import errors
from nki.dtypes import DType, as_dtype
from nki.frontend.snapshot import Freezer, Unfreezable, attributes
from nki.span import capture


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

    def check_writable(self) -> None:
        """Raise if values cannot be copied into the caller's tensor."""
        original = self.original
        if self.is_torch:
            shared = any(size > 1 and step == 0 for size, step in zip(original.shape, original.stride()))
            reason = "an expanded tensor, whose elements share memory" if shared else ""
        elif isinstance(original, np.ndarray):
            reason = "" if original.flags.writeable else "a read-only array"
        else:
            reason = f"an immutable {type(original).__name__}"
        if reason:
            raise errors.ArgumentError(
                f"the kernel writes its argument `{self.name}`, but what was passed cannot be written",
                operand=self.name,
                found=reason,
                allowed="an array or a tensor with memory of its own",
                remedy="pass a copy, or have the kernel return a new tensor in nl.shared_hbm",
                span=capture(2),
            )

    def write_back(self, values: np.ndarray) -> None:
        """Copy values into the caller's tensor."""
        if self.is_torch:
            import torch

            with torch.no_grad():
                self.original.copy_(to_torch(values).reshape(self.original.shape))
        else:
            np.copyto(self.original, values.reshape(self.original.shape))


@dataclass(frozen=True)
class _Slot:
    """Stands where a tensor was taken out."""

    index: int


_slot = lru_cache(maxsize=None)(_Slot)  # one object per index: what is frozen by identity stays equal


@dataclass(frozen=True)
class _Shell:
    """An object, or a container of a class of its own, with tensors inside: `parts` are its attributes or items."""

    origin: Any
    parts: Any

    def filled(self, parts: Any) -> Any:
        """A copy of the object around other parts."""
        if isinstance(self.origin, tuple):
            kind = type(self.origin)
            return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
        made = copy.copy(self.origin)
        if isinstance(made, list):
            made[:] = parts
        elif isinstance(made, dict):
            made.update(parts)
        else:
            for name, part in parts.items():
                object.__setattr__(made, name, part)
        return made


@dataclass
class Arguments:
    """The arguments of one call: tensors taken out, the rest in place.

    key: `None` if some constant cannot be compared. kept: what the key refers to by identity, to be kept as long as
    the key. classes: of the constants; a kernel may read their attributes.
    """

    leaves: list[Leaf] = field(default_factory=list)
    structure: dict[str, Any] = field(default_factory=dict)
    key: tuple[Any, ...] | None = ()
    kept: list[object] = field(default_factory=list)
    classes: list[type] = field(default_factory=list)

    def filled(self, tensors: list[Any]) -> dict[str, Any]:
        """The arguments with `tensors` in place of the caller's."""
        return {name: _fill(value, tensors) for name, value in self.structure.items()}

    def _meet(self, value: Any) -> None:
        if isinstance(value, type):
            self.classes.append(value)

    def _freeze(self) -> None:
        """Make the cache key."""
        freezer = Freezer(self.kept, self._meet)
        try:
            constants = tuple((name, freeze(value, freezer)) for name, value in self.structure.items())
            tensors = tuple((leaf.array.shape, leaf.dtype) for leaf in self.leaves)
            self.key = (tensors, constants)
            hash(self.key)
        except (TypeError, Unfreezable):
            self.key = None


def collect(values: dict[str, Any]) -> Arguments:
    """Take the tensors out of bound arguments and make the cache key."""
    arguments = Arguments()
    for name, value in values.items():
        arguments.structure[name] = _take(value, name, arguments.leaves, ())
    arguments._freeze()
    return arguments


def call_error(
    name: str, signature: inspect.Signature, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> errors.NkiError:
    """The error for a call that does not fit a kernel's parameters; `text` is what Python says."""
    names = list(signature.parameters)
    any_name = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    unknown = next((word for word in kwargs if word not in names and not any_name), None)
    if unknown:
        text = f"got an unexpected keyword argument '{unknown}'"
    close = difflib.get_close_matches(unknown, names, n=1) if unknown else []
    return (errors.UnknownKeywordError if unknown else errors.ArgumentError)(
        f"{name}(): {text}",
        operand=unknown,
        found=", ".join([f"{len(args)} positional arguments", *(f"{word}=..." for word in kwargs)]),
        allowed=f"{name}{signature}",
        remedy=f"did you mean `{close[0]}`?" if close else "call the kernel with its own parameters",
        span=capture(2),
    )


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_tensor(value: Any) -> bool:
    if isinstance(value, np.ndarray) or _is_torch(value):
        return True
    return type(value).__module__.split(".")[0] in ("jax", "jaxlib") and hasattr(value, "__array__")


_ATOMS = frozenset({int, float, str, bool, bytes, type(None)})
_WHOLE = (type, Enum, ModuleType, DType)
"""Objects that are not looked into for tensors."""


def _take(value: Any, name: str, leaves: list[Leaf], path: tuple[int, ...]) -> Any:
    """`value` with slots in place of tensors. `path`: the objects it lies in, which it may refer to again."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if _is_tensor(value):
        leaves.append(_leaf(value, name))
        return _slot(len(leaves) - 1)
    if id(value) in path:
        return value
    before = len(leaves)
    path = (*path, id(value))
    parts: Any
    if isinstance(value, (tuple, list)):
        parts = [_take(item, f"{name}_{i}", leaves, path) for i, item in enumerate(value)]
        if kind is list or kind is tuple:
            return kind(parts)
    elif isinstance(value, dict):
        parts = {key: _take(item, f"{name}_{key}", leaves, path) for key, item in value.items()}
        if kind is dict:
            return parts
    elif isinstance(value, _WHOLE) or callable(value):
        return value
    else:
        parts = {key: _take(item, f"{name}_{key}", leaves, path) for key, item in attributes(value).items()}
    return _Shell(value, parts) if len(leaves) > before else value


def _fill(value: Any, tensors: list[Any]) -> Any:
    kind = type(value)
    if kind is _Slot:
        return tensors[value.index]
    if kind is list or kind is tuple:
        return kind([_fill(item, tensors) for item in value])
    if kind is dict:
        return {key: _fill(item, tensors) for key, item in value.items()}
    if kind is _Shell:
        plain = value.parts if isinstance(value.parts, dict) else tuple(value.parts)
        return value.filled(_fill(plain, tensors))
    return value


def freeze(value: Any, freezer: Freezer) -> Any:
    """A hashable stand-in for a constant that is equal exactly when the constant is."""
    kind = type(value)
    if kind is list or kind is tuple:
        return (kind, *[freeze(item, freezer) for item in value])
    if kind is dict:
        return (kind, *[(freezer.freeze(key), freeze(item, freezer)) for key, item in value.items()])
    if kind is _Shell:
        beside = attributes(value.origin) if isinstance(value.origin, (tuple, list, dict)) else {}
        plain = value.parts if isinstance(value.parts, dict) else tuple(value.parts)
        return (freezer.freeze(type(value.origin)), freezer.freeze(beside), freeze(plain, freezer))
    return freezer.freeze(value)


def _leaf(value: Any, name: str) -> Leaf:
    try:
        dtype = as_dtype(value.dtype)
        if isinstance(value, np.ndarray):
            array = value
        else:
            array = from_torch(value) if _is_torch(value) else np.asarray(value)
    except errors.NkiError as error:
        error.message = f"argument `{name}`: {error.message}"
        error.operand = name
        raise error from None
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
