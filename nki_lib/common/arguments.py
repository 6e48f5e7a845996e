"""Checks of tensor arguments that several operators share; each raises an error that names the argument."""

from __future__ import annotations

import torch
from torch import Tensor

from nki import errors

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DEVICES = ("cpu", "meta")


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
        """Where they lie. The front doors ask first: PyTorch would find no operator for other layouts and devices."""
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            if tensor.layout != torch.strided:
                remedy = f"make it dense first: {name}.to_dense()"
                raise self.error(errors.ArgumentError, name, tensor.layout, "a dense tensor", remedy)
            if tensor.device.type not in DEVICES:
                remedy = f"move it first: {name}.cpu()"
                raise self.error(errors.ArgumentError, name, tensor, "a tensor on the CPU", remedy)

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
        if tuple(tensor.shape) != expected:
            raise self.error(errors.ShapeError, name, tensor, f"shape {list(expected)}, {why}", remedy)

    def rotation(self, cos: Tensor, sin: Tensor, batch: int, length: int, depth: int) -> None:
        """Tables [S, W] or [B, S, W] for heads of `depth`, with W = depth or half of it."""
        for name, table in (("cos", cos), ("sin", sin)):
            self.tensor(name, table, "batch, length, width" if table.dim() == 3 else "length, width")
            widths = (depth, depth // 2)
            if table.shape[-1] not in widths or table.shape[-2] != length:
                allowed = f"[{length}, {depth}] or [{length}, {depth // 2}], with or without batch {batch}"
                remedy = "pass the rows of these positions, of full or of half width"
                raise self.error(errors.ShapeError, name, table, allowed, remedy)
            if table.dim() == 3 and table.shape[0] != batch:
                remedy = f"leave the batch out if all share it, or expand it: {name}.expand({batch}, -1, -1)"
                raise self.error(errors.ShapeError, name, table, f"batch {batch}", remedy)
        if depth % 2:
            allowed = "an even head dimension, as the rotation turns pairs"
            raise self.error(errors.ShapeError, "cos", f"head dimension {depth}", allowed, "pad the heads")
        if sin.dtype != cos.dtype:
            raise self.error(
                errors.DtypeError, "sin", sin, f"{cos.dtype}, as cos", "cast it: sin.to(cos.dtype)"
            )
        if sin.shape != cos.shape:
            raise self.error(errors.ShapeError, "sin", sin, f"shape {list(cos.shape)}, as cos")
