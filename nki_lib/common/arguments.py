"""Checks of tensor arguments that several operators share; each raises an error that names the argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from nki import errors

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
DEVICES = ("cpu", "meta")
LARGEST = torch.finfo(torch.float32).max


def autocast(*tensors: Tensor | None) -> tuple[Any, ...]:
    """The tensors as `torch.autocast` wants them for products: those of a float type the kernels take, cast."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) if isinstance(t, Tensor) and t.dtype in DTYPES else t for t in tensors)


def same_shape(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether two shapes are equal: axis by axis, as traced sizes do not compare as tuples."""
    return len(found) == len(expected) and all(mine == theirs for mine, theirs in zip(found, expected))


class Checks:
    """The checks of one operator, whose name begins every message."""

    def __init__(self, operator: str) -> None:
        self.operator = operator

    def error(
        self, kind: type[errors.NkiError], name: str, found: object, allowed: str, remedy: str | None = None
    ) -> errors.NkiError:
        """What to raise for the argument `name`."""
        if isinstance(found, Tensor):
            found = f"{found.dtype} of shape {list(found.shape)} on {found.device}"
        return kind(
            f"{self.operator}: cannot take this `{name}`",
            operand=name,
            found=str(found),
            allowed=allowed,
            remedy=remedy,
        )

    def places(self, **tensors: Tensor | None) -> None:
        """That they are dense tensors on one device. The front doors ask first: PyTorch would find no operator for
        other layouts and devices, and for a mixture it would take the one that computes nothing."""
        first: tuple[str, Tensor] | None = None
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            if not isinstance(tensor, Tensor):
                remedy = f"make it one: torch.as_tensor({name})"
                raise self.error(errors.ArgumentError, name, type(tensor).__name__, "a torch.Tensor", remedy)
            if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
                kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else tensor.layout
                way = "dequantize" if tensor.is_quantized else "to_dense"
                remedy = f"make it dense first: {name}.{way}()"
                raise self.error(errors.ArgumentError, name, f"a {kind} tensor", "a dense tensor", remedy)
            if tensor.device.type not in DEVICES:
                remedy = f"move it first: {name}.cpu()"
                raise self.error(errors.ArgumentError, name, tensor, "a tensor on the CPU", remedy)
            first = first or (name, tensor)
            if tensor.device != first[1].device:
                allowed = f"{first[1].device}, as {first[0]}"
                remedy = f"move it: {name}.to({str(first[1].device)!r})"
                raise self.error(errors.ArgumentError, name, tensor, allowed, remedy)

    def required(self, **tensors: Tensor | None) -> None:
        """That none of them is left out; `places` takes None for a tensor that may be."""
        for name, tensor in tensors.items():
            if tensor is None:
                raise self.error(errors.ArgumentError, name, None, "a torch.Tensor", f"pass `{name}`")

    def number(
        self,
        name: str,
        value: object,
        *,
        positive: bool = False,
        least: float | None = None,
        optional: bool = True,
    ) -> None:
        """A number that float32 holds, above 0 or not below `least` if so asked; None too, if it is optional."""
        if value is None and optional:
            return
        if isinstance(value, (int, float, torch.SymFloat, torch.SymInt)) and not isinstance(value, bool):
            too_small = (positive and not value > 0) or (least is not None and not value >= least)
            if not too_small and abs(value) <= LARGEST:
                return
            found, remedy = str(value), "pass None for none" if optional else None
        else:
            found, remedy = f"{type(value).__name__} {value!r}", None
        allowed = "a positive number" if positive else "a number"
        allowed += "" if least is None else f", {least} or more,"
        allowed += f" up to {LARGEST:.2g} in magnitude"  # not before: a number may be traced
        raise self.error(errors.ArgumentError, name, found, allowed, remedy)

    def choice(
        self,
        name: str,
        value: object,
        allowed: Iterable[str],
        *,
        optional: bool = False,
        remedy: str | None = None,
    ) -> None:
        """One of the names; None too, if it is optional."""
        names = tuple(allowed)
        if (value is None and optional) or (isinstance(value, str) and value in names):
            return
        listed = f"{'None or ' if optional else ''}one of {', '.join(names)}"
        raise self.error(errors.ArgumentError, name, repr(value), listed, remedy)

    def dtype(self, name: str, value: object, *, optional: bool = True, remedy: str | None = None) -> None:
        """A type that results may have; None too, if it is optional."""
        if (value is None and optional) or (isinstance(value, torch.dtype) and value in DTYPES):
            return
        allowed = "torch.float32, torch.bfloat16 or torch.float16"
        found = value if isinstance(value, torch.dtype) else repr(value)
        raise self.error(errors.DtypeError, name, found, allowed, remedy)

    def tensor(self, name: str, tensor: Tensor, axes: str, like: Tensor | None = None) -> None:
        """Its number of dimensions (those that `axes` names), its dtype and device, those of `like` if given."""
        if tensor.dtype not in DTYPES:
            raise self.error(errors.DtypeError, name, tensor, "float32, bfloat16 or float16", "cast it first")
        if like is not None and tensor.device != like.device:
            remedy = f"move it: {name}.to({str(like.device)!r})"
            raise self.error(
                errors.ArgumentError, name, tensor, f"{like.device}, as the first argument", remedy
            )
        if like is not None and tensor.dtype != like.dtype:
            remedy = f"cast it: {name}.to({like.dtype})"
            raise self.error(errors.DtypeError, name, tensor, f"{like.dtype}, as the first argument", remedy)
        if tensor.dim() != len(axes.split(",")):
            raise self.error(errors.ShapeError, name, tensor, f"{len(axes.split(','))} dimensions, [{axes}]")

    def shape(
        self, name: str, tensor: Tensor, expected: tuple[int, ...], why: str, remedy: str | None = None
    ) -> None:
        """Its exact shape."""
        if not same_shape(tensor.shape, expected):
            raise self.error(errors.ShapeError, name, tensor, f"shape {list(expected)}, {why}", remedy)
