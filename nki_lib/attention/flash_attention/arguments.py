"""What flash attention accepts: every refusal names the argument, what it is, what is allowed, and a way out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import nki.language as nl
from nki import errors
from nki_lib.attention.checks import AttentionChecks
from nki_lib.common.arguments import DTYPES

CHECKS = AttentionChecks("flash_attention")
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
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


def check_arguments(q: Tensor, k: Tensor, v: Tensor, extras: Extras) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.attention(q, k, v, PARTS * nl.tile_size.pmax)
    CHECKS.numbers(extras.scale, extras.window, extras.softcap)
    _check_extra_tensors(q, k, extras)


def _check_extra_tensors(q: Tensor, k: Tensor, extras: Extras) -> None:
    batch, heads, queries = q.shape[:3]
    keys = k.shape[2]
    if extras.sinks is not None:
        _check_dtype("sinks", extras.sinks, DTYPES, "float32, bfloat16 or float16")
        CHECKS.shape("sinks", extras.sinks, (heads,), "one for each head of q")
    if extras.bias is not None:
        _check_dtype("bias", extras.bias, DTYPES, "float32, bfloat16 or float16")
        full = [batch, heads, queries, keys]
        sizes = list(extras.bias.shape)
        fits = len(sizes) <= 4 and all(a in (1, b) for a, b in zip(sizes[::-1], full[::-1]))
        if not fits:
            raise CHECKS.error(errors.ShapeError, "bias", extras.bias, f"a shape that broadcasts to {full}")
    if extras.key_padding_mask is not None:
        remedy = "a mask of numbers: mask != 0, True where the key may be seen"
        _check_dtype("key_padding_mask", extras.key_padding_mask, (torch.bool,), "bool", remedy)
        CHECKS.shape("key_padding_mask", extras.key_padding_mask, (batch, keys), "one for each key")
    sides = (
        ("q_segment_ids", extras.q_segment_ids, queries, extras.kv_segment_ids),
        ("kv_segment_ids", extras.kv_segment_ids, keys, extras.q_segment_ids),
    )
    for name, ids, length, other in sides:
        if ids is not None:
            _check_dtype(name, ids, INTEGERS, "integers")
            CHECKS.shape(name, ids, (batch, length), "one for each position")
            if other is None:
                raise CHECKS.error(
                    errors.ArgumentError, name, ids, "segment ids of both sides, or none", "pass the other"
                )


def _check_dtype(
    name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...], allowed: str, remedy: str = "cast it first"
) -> None:
    if tensor.dtype not in dtypes:
        raise CHECKS.error(errors.DtypeError, name, tensor, allowed, remedy)
