"""What flash attention accepts: every refusal names the argument, what it is, what is allowed, and a way out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

import nki.language as nl
from nki import errors

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DEVICES = ("cpu", "meta")
PARTS = 2  # of the head dimension, each on the partitions


@dataclass(frozen=True)
class Extras:
    """The arguments beside q, k and v, named as in `nki_lib.flash_attention`."""

    causal: bool = False
    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    bias: Tensor | None = None
    key_padding_mask: Tensor | None = None
    q_segment_ids: Tensor | None = None
    kv_segment_ids: Tensor | None = None


def check_places(**tensors: Tensor | None) -> None:
    """Raise for tensors that PyTorch would not even hand to the operator: sparse ones, and those on other devices."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.layout != torch.strided:
            raise _error(errors.ArgumentError, name, tensor, "a dense tensor", f"{name}.to_dense()")
        if tensor.device.type not in DEVICES:
            remedy = f"move it first: {name}.cpu()"
            raise _error(errors.ArgumentError, name, tensor, "a tensor on the CPU", remedy)


def check_arguments(q: Tensor, k: Tensor, v: Tensor, extras: Extras) -> None:
    """Raise for what cannot be computed, naming the argument."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check_tensor(name, tensor, DTYPES, "float32, bfloat16 or float16")
        if tensor.dim() != 4:
            raise _error(
                errors.ShapeError, name, tensor, "4 dimensions, [batch, heads, length, head dimension]"
            )
        if tensor.dtype != q.dtype:
            raise _error(errors.DtypeError, name, tensor, f"{q.dtype}, as q", f"cast it: {name}.to(q.dtype)")
        if tensor.shape[0] != q.shape[0] or tensor.shape[3] != q.shape[3]:
            allowed = f"batch {q.shape[0]} and head dimension {q.shape[3]}, as q"
            raise _error(errors.ShapeError, name, tensor, allowed)
    if k.shape != v.shape:
        raise _error(errors.ShapeError, "v", v, f"shape {list(k.shape)}, as k")
    if k.shape[1] != q.shape[1] and (k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0):
        allowed = f"a number of heads that divides the {q.shape[1]} of q"
        raise _error(
            errors.ShapeError, "k", k, allowed, "pass k and v with one head per group of query heads"
        )
    most = PARTS * nl.tile_size.pmax
    if q.shape[3] > most:
        remedy = "split the heads: the head dimension lies on the partitions, in two parts"
        raise _error(errors.ShapeError, "q", q, f"a head dimension of at most {most}", remedy)
    _check_numbers(extras)
    _check_extra_tensors(q, k, extras)


def _check_numbers(extras: Extras) -> None:
    window, softcap, scale = extras.window, extras.softcap, extras.scale
    if window is not None and window < 1:
        raise _number_error("window", window, "an integer of at least 1", "pass None to see all keys")
    if softcap is not None and not 0 < softcap < math.inf:
        raise _number_error("softcap", softcap, "a positive number", "pass None for scores without a cap")
    if scale is not None and not math.isfinite(scale):
        raise _number_error("scale", scale, "a finite number", "pass None for 1/sqrt(D)")


def _check_extra_tensors(q: Tensor, k: Tensor, extras: Extras) -> None:
    batch, heads, queries = q.shape[:3]
    keys = k.shape[2]
    if extras.sinks is not None:
        _check_tensor("sinks", extras.sinks, DTYPES, "float32, bfloat16 or float16")
        _check_shape("sinks", extras.sinks, [heads])
    if extras.bias is not None:
        _check_tensor("bias", extras.bias, DTYPES, "float32, bfloat16 or float16")
        full = [batch, heads, queries, keys]
        sizes = list(extras.bias.shape)
        fits = len(sizes) <= 4 and all(a in (1, b) for a, b in zip(sizes[::-1], full[::-1]))
        if not fits:
            raise _error(errors.ShapeError, "bias", extras.bias, f"a shape that broadcasts to {full}")
    if extras.key_padding_mask is not None:
        remedy = "a mask of numbers: mask != 0, True where the key may be seen"
        _check_tensor("key_padding_mask", extras.key_padding_mask, (torch.bool,), "bool", remedy)
        _check_shape("key_padding_mask", extras.key_padding_mask, [batch, keys])
    sides = (
        ("q_segment_ids", extras.q_segment_ids, queries, extras.kv_segment_ids),
        ("kv_segment_ids", extras.kv_segment_ids, keys, extras.q_segment_ids),
    )
    for name, ids, length, other in sides:
        if ids is not None:
            _check_tensor(name, ids, INTEGERS, "integers")
            _check_shape(name, ids, [batch, length])
            if other is None:
                raise _error(
                    errors.ArgumentError, name, ids, "segment ids of both sides, or none", "pass the other"
                )


def _check_tensor(
    name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...], allowed: str, remedy: str = "cast it first"
) -> None:
    if tensor.dtype not in dtypes:
        raise _error(errors.DtypeError, name, tensor, allowed, remedy)


def _check_shape(name: str, tensor: Tensor, shape: list[int]) -> None:
    if list(tensor.shape) != shape:
        raise _error(errors.ShapeError, name, tensor, f"shape {shape}")


def _error(
    kind: type[errors.NkiError], name: str, tensor: Tensor, allowed: str, remedy: str | None = None
) -> errors.NkiError:
    layout = "" if tensor.layout == torch.strided else f", {tensor.layout}"
    return kind(
        f"flash_attention: cannot take this `{name}`",
        operand=name,
        found=f"{tensor.dtype} of shape {list(tensor.shape)} on {tensor.device}{layout}",
        allowed=allowed,
        remedy=remedy,
    )


def _number_error(name: str, value: object, allowed: str, remedy: str) -> errors.NkiError:
    return errors.ArgumentError(
        f"flash_attention: cannot take this `{name}`",
        operand=name,
        found=str(value),
        allowed=allowed,
        remedy=remedy,
    )
