"""What Transformers calls to make the masks of a model whose attention is "nki".

It describes a mask by a function of positions. The usual ones are recognised and become, cheapest first:
  nothing              causal, or all keys, as the layer is
  [B, Sk] boolean      the same with padding
  [B, 1, Sq, Sk]       with its `Pattern` attached: a window, the unfilled rest of a static cache
Every other function becomes a plain boolean [B, 1, Sq, Sk], which is always right. So do masks made inside
`torch.compile` that depend on values or need an attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
    sliding_window_causal_mask_function,
)

from nki_lib.hf.pattern import Pattern, attach

Span = tuple[int, int, int, int]
"""Where queries and keys are: q_offset, q_length, kv_offset, kv_length."""


def nki_mask(*, mask_function: Callable[..., Any] = causal_mask_function, **given: Any) -> Tensor | None:
    """The mask of one kind of layer: `None`, [B, Sk] or [B, 1, Sq, Sk] (see above).

    given: what every mask function of Transformers gets, of which this one reads batch_size, kv_length, kv_offset,
    q_length and q_offset (or, in the first releases, cache_position), attention_mask [B, positions so far],
    local_size and allow_*_skip.
    """
    span = _span(given)
    pattern = span and _recognised(mask_function, span, given)
    if not pattern:
        return _full(mask_function, given)
    skip = "allow_is_causal_skip" if pattern.causal else "allow_is_bidirectional_skip"
    if given.get(skip, pattern.causal) and pattern.window is None and pattern.keys is None:
        return pattern.padding
    if torch.compiler.is_compiling():
        return _full(mask_function, given)
    return attach(_full(mask_function, given), pattern)


def _full(mask_function: Callable[..., Any], given: dict[str, Any]) -> Tensor:
    """The boolean [B, 1, Sq, Sk] that Transformers itself makes."""
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask: Tensor = sdpa_mask(**{**given, **skips, "mask_function": mask_function})
    return mask


def _span(given: dict[str, Any]) -> Span | None:
    """The positions, or `None` where they are values inside `torch.compile`."""
    positions = given.get("cache_position")
    if positions is not None:
        offset, length = positions[0], len(positions)
    else:
        offset, length = given.get("q_offset", 0), given["q_length"]
    if isinstance(offset, Tensor):
        if torch.compiler.is_compiling():
            return None
        offset = int(offset)
    return offset, length, given.get("kv_offset", 0), given["kv_length"]


def _recognised(mask_function: Callable[..., Any], span: Span, given: dict[str, Any]) -> Pattern | None:
    """The pattern that a function of positions means, if it is one of the usual ones."""
    q_offset, q_length, kv_offset, kv_length = span
    if mask_function is bidirectional_mask_function:
        return Pattern(causal=False, padding=_padding(given, span, kv_length))
    keys = q_offset + q_length - kv_offset  # those up to the last query
    if not 0 < keys <= kv_length:
        return None
    padding = _padding(given, span, keys)
    rest = None if keys == kv_length else keys
    if mask_function is causal_mask_function:
        return Pattern(causal=True, keys=rest, padding=padding)
    window = given.get("local_size")
    if window is None or torch.compiler.is_compiling():
        return None
    if not same_function(mask_function, sliding_window_causal_mask_function(window)):
        return None
    return Pattern(causal=True, window=window if window < keys else None, keys=rest, padding=padding)


def _padding(given: dict[str, Any], span: Span, keys: int) -> Tensor | None:
    """The part [B, Sk] of the padding mask that belongs to the keys; `None` if it hides none of the first `keys`."""
    given_mask: Tensor | None = given.get("attention_mask")
    if given_mask is None:
        return None
    start, stop = span[2], span[2] + span[3]
    missing = max(stop - given_mask.shape[1], 0)  # of a static cache, which is not filled yet
    padding = torch.nn.functional.pad(given_mask, (0, missing))[:, start:stop].bool()
    if not torch.compiler.is_compiling() and padding[:, :keys].all():
        return None
    return padding


def same_function(one: Any, other: Any) -> bool:
    """Whether two functions, or what they close over, are the same code on the same values."""
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        cells = [[cell.cell_contents for cell in f.__closure__ or ()] for f in (one, other)]
        return one.__code__ is other.__code__ and same_function(tuple(cells[0]), tuple(cells[1]))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same_function, one, other))
    return one is other or (isinstance(one, int) and isinstance(other, int) and one == other)
