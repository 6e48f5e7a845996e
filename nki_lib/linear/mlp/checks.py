"""What the MLP refuses, and what it takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import FLOAT8, Checks
from nki_lib.common.rows import as_rows
from nki_lib.linear.mlp.activations import FUNCTIONS

CHECKS = Checks("mlp")
NORMS = ("rms", "layer")


class Options(NamedTuple):
    """The arguments that are no tensors."""

    activation: str = "silu"
    norm: str = "rms"
    eps: float = 1e-6
    offset: float = 0.0
    limit: float | None = None


class Tensors(NamedTuple):
    """Those that are, in the operator's order. x, residual [..., H]; up, gate [I, H]; down [H, I]."""

    x: Tensor
    up: Tensor
    down: Tensor
    gate: Tensor | None = None
    up_bias: Tensor | None = None
    gate_bias: Tensor | None = None
    down_bias: Tensor | None = None
    norm_weight: Tensor | None = None
    norm_bias: Tensor | None = None
    residual: Tensor | None = None
    up_scale: Tensor | None = None
    gate_scale: Tensor | None = None
    down_scale: Tensor | None = None


def check_arguments(given: Tensors, options: Options) -> None:
    """Raise for what cannot be computed, naming the argument."""
    x = given.x
    if x.dim() == 0:
        raise CHECKS.error(errors.ShapeError, "x", x, "[..., H]")
    CHECKS.tensor("x", x, ",".join("?" * x.dim()))
    width = x.shape[-1]
    check_weight("up", given.up, given.up_scale, x)
    hidden = given.up.shape[0]
    weights: dict[str, tuple[int, ...]] = {
        "up": (hidden, width),
        "gate": (hidden, width),
        "down": (width, hidden),
    }
    for name, shape in weights.items():
        weight = getattr(given, name)
        if weight is not None:
            check_weight(name, weight, getattr(given, f"{name}_scale"), x)
            remedy = "pass it as torch.nn.Linear keeps it"
            CHECKS.shape(
                name, weight, shape, f"for x of width {width} and a hidden layer of {hidden}", remedy
            )
    for name, length in (("up_bias", hidden), ("gate_bias", hidden), ("down_bias", width)):
        bias = getattr(given, name)
        if bias is not None:
            CHECKS.tensor(name, bias, "width", like=x)
            CHECKS.shape(name, bias, (length,), f"one for each row of {name.removesuffix('_bias')}")
    if given.residual is not None:
        CHECKS.tensor("residual", given.residual, ",".join("?" * x.dim()), like=x)
        remedy = "expand it first: it is added to the result as it is"
        CHECKS.shape("residual", given.residual, tuple(x.shape), "that of the result", remedy)
    for name in ("gate_bias", "gate_scale"):
        if given.gate is None and getattr(given, name) is not None:
            raise CHECKS.error(errors.ArgumentError, name, getattr(given, name), "None without a gate")
    check_options(options)
    check_norm(given, options)


def check_weight(name: str, weight: Tensor, scale: Tensor | None, x: Tensor) -> None:
    """A matrix like x, or in 8 bits with a scale for each of its rows."""
    if weight.dtype not in FLOAT8:
        CHECKS.tensor(name, weight, "rows, columns", like=x)
        if scale is not None:
            allowed = f"None with a weight of {weight.dtype}"
            raise CHECKS.error(errors.ArgumentError, f"{name}_scale", scale, allowed)
        return
    for part, tensor in ((name, weight), (f"{name}_scale", scale)):
        if tensor is not None and tensor.device != x.device:
            raise CHECKS.error(errors.ArgumentError, part, tensor, f"{x.device}, as the first argument")
    if weight.dim() != 2:
        raise CHECKS.error(errors.ShapeError, name, weight, "2 dimensions, [rows, columns]")
    if scale is None or scale.dtype != torch.float32:
        allowed = f"float32, a scale for each row of {name}, which is {weight.dtype}"
        raise CHECKS.error(errors.DtypeError, f"{name}_scale", scale, allowed)
    CHECKS.shape(f"{name}_scale", scale, (weight.shape[0],), f"one for each row of {name}")


def check_norm(given: Tensors, options: Options) -> None:
    """What concerns the norm."""
    for name in ("norm_weight", "norm_bias"):
        vector = getattr(given, name)
        if vector is None:
            continue
        CHECKS.tensor(name, vector, "width")
        CHECKS.shape(name, vector, (given.x.shape[-1],), "one for each column of x")
        if vector.device != given.x.device:
            raise CHECKS.error(errors.ArgumentError, name, vector, f"{given.x.device}, as the first argument")
    if given.norm_bias is not None and (given.norm_weight is None or options.norm != "layer"):
        allowed = 'None, or norm_weight and norm="layer" with it'
        raise CHECKS.error(errors.ArgumentError, "norm_bias", given.norm_bias, allowed)
    if options.offset != 0.0 and options.norm != "rms":
        raise CHECKS.error(
            errors.ArgumentError, "offset", options.offset, 'a number other than 0 with norm="rms"'
        )


def check_options(options: Options) -> None:
    """Names and numbers."""
    CHECKS.choice("activation", options.activation, FUNCTIONS)
    CHECKS.choice("norm", options.norm, NORMS)
    CHECKS.number("eps", options.eps, least=0, optional=False)
    CHECKS.number("offset", options.offset, optional=False)
    CHECKS.number("limit", options.limit, positive=True)


def in_rows(tensor: Tensor | None) -> Tensor | None:
    """[..., n] as [R, n], contiguous."""
    return None if tensor is None else as_rows(tensor).contiguous()


def contiguous(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Weights as kernels read them; those of torch.nn.Linear are not copied."""
    return tuple(None if t is None else t.contiguous() for t in tensors)


def column_sum(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient of a bias. Dimensions: [R, n] -> [n]."""
    return rows.sum(0, dtype=torch.float32).to(dtype)
