"""What Transformers calls as the attention of a model that is set to "nki".

New tokens on a cache go to `flash_decode` where it can serve them, everything else to `flash_attention`: prompts,
training, encoders, masks that have no name. Neither stages a program for every length of a growing cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import nki.language as nl
from nki import errors
from nki_lib.attention.flash_attention.api import flash_attention
from nki_lib.attention.flash_decode.api import flash_decode
from nki_lib.attention.flash_decode.op import keys_read
from nki_lib.hf.pattern import Pattern, pattern_of

MOST_TOKENS = 8
"""How many new tokens of a sequence `flash_decode` takes at once."""

MOST_DEPTH = nl.tile_size.pmax
"""The largest head dimension of `flash_decode`."""

UNKNOWN = ("sinks", "indices", "block_indices", "relative_position_bias")
"""Arguments of single models, each of which changes the result in a way that is not computed here."""


def nki_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer, and no weights. The window is not asked for: it is in the mask, as for "eager".

    Dimensions: query [B, Hq, Sq, D], key [B, Hkv, Sk, D], value [B, Hkv, Sk, Dv], s_aux (one sink a head) [Hq],
    position_bias [B or 1, Hq, Sq, Sk] -> [B, Sq, Hq, Dv]. Errors: ArgumentError for what the kernels do not compute.
    """
    _check(dropout, others)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    pattern = pattern_of(attention_mask, causal)
    options = {
        "scale": query.shape[-1] ** -0.5 if scaling is None else scaling,
        "softcap": softcap,
        "sinks": s_aux,
    }
    width = value.shape[-1]
    query, key, value = _same_depth(query, key, value)
    if position_bias is None and _is_decoding(query, key, value, pattern):
        out = _decode(query, key, value, pattern, options)
    else:
        out = _attend(query, key, value, pattern, position_bias, options)
    return out[..., :width].transpose(1, 2).contiguous(), None


def _check(dropout: float, others: dict[str, Any]) -> None:
    if dropout:
        raise errors.ArgumentError(
            'attn_implementation="nki": there is no dropout of attention weights',
            operand="dropout",
            found=dropout,
            allowed="0.0",
            remedy="set the dropout of attention weights to 0 in the model's config: attention_dropout, attn_pdrop, "
            "dropout_rate or attention_probs_dropout_prob",
        )
    if others.get("output_attentions"):
        raise errors.ArgumentError(
            'attn_implementation="nki": attention weights never exist as a matrix',
            operand="output_attentions",
            found="True",
            allowed="False",
            remedy='model.set_attn_implementation("eager") to see the weights',
        )
    for name in UNKNOWN:
        if others.get(name) is not None:
            raise errors.ArgumentError(
                f'attn_implementation="nki": this model needs `{name}`, which the kernels do not compute',
                operand=name,
                found=type(others[name]).__name__,
                allowed="None",
                remedy='model.set_attn_implementation("eager")',
            )


def _same_depth(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """All three with the larger of the two head dimensions; zeros change no product."""
    depth = max(query.shape[-1], value.shape[-1])
    return tuple(
        t if t.shape[-1] == depth else nn.functional.pad(t, (0, depth - t.shape[-1]))
        for t in (query, key, value)
    )


def _is_decoding(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern) -> bool:
    """Whether `flash_decode`, which has no gradient and knows the keys by their number, can serve the call."""
    tokens, depth = query.shape[2:]
    if pattern.mask is not None or depth > MOST_DEPTH:
        return False
    if torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value)):
        return False
    keys = key.shape[2] if pattern.keys is None else pattern.keys
    several = 1 < tokens <= MOST_TOKENS and tokens < keys and pattern.causal and pattern.padding is None
    return tokens == 1 or several


def _decode(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, options: dict[str, Any]) -> Tensor:
    """New tokens on a cache. Dimensions: as `nki_attention`, one D for all -> [B, Hq, Sq, D].

    `flash_decode` takes the first keys of a sequence, as many as its length says. Where padding hides some of them,
    those that are seen are moved to the front: attention does not ask for the order of keys.
    """
    window = pattern.window
    if pattern.padding is None:
        keys = key.shape[2] if pattern.keys is None else pattern.keys
        lengths = torch.full((query.shape[0],), keys, dtype=torch.int32, device=query.device)
    else:
        seen, window = _seen_by_last(pattern, key), None
        lengths = seen.sum(1, dtype=torch.int32)
        order = seen.argsort(dim=1, descending=True, stable=True)[:, None, :, None]
        key, value = (t.gather(2, order.expand_as(t)) for t in (key, value))
    return flash_decode(query, key, value, lengths, window=window, **options)


def _seen_by_last(pattern: Pattern, key: Tensor) -> Tensor:
    """Which keys the last query sees, if the pattern has no mask: [B, Sk]."""
    places = torch.arange(key.shape[2], device=key.device)
    keys = key.shape[2] if pattern.keys is None else pattern.keys
    seen = places < keys
    if pattern.window is not None:
        seen = seen & (places >= keys - pattern.window)
    return seen.expand(key.shape[0], -1) if pattern.padding is None else seen & pattern.padding


def _attend(
    query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, bias: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """Any number of queries. Dimensions: as `_decode`; bias [B or 1, Hq or 1, Sq or 1, Sk or 1]."""
    if pattern.mask is not None:
        mask = _added(pattern.mask, query.dtype)
        bias = mask if bias is None else bias + mask
    bias = None if bias is None else bias.to(query.dtype)
    if query.shape[2] == 1:
        return _attend_to_many(query, key, value, _seen_by_last(pattern, key), bias, options)
    padding = None if pattern.padding is None else pattern.padding[:, : pattern.keys]
    return flash_attention(
        query,
        key[:, :, : pattern.keys],
        value[:, :, : pattern.keys],
        causal=pattern.causal,
        window=pattern.window,
        key_padding_mask=padding,
        bias=bias if bias is None or bias.shape[3] == 1 else bias[..., : pattern.keys],
        **options,
    )


def _attend_to_many(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor, bias: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """One query, with the keys filled up to a power of two: a cache that grows stages few programs.

    Dimensions: as `_attend`, Sq = 1; seen [B, Sk].
    """
    missing = 0 if torch.compiler.is_compiling() else keys_read(key.shape[2]) - key.shape[2]
    key, value = (nn.functional.pad(t, (0, 0, 0, missing)) for t in (key, value))
    if bias is not None and bias.shape[3] > 1:
        bias = nn.functional.pad(bias, (0, missing))
    seen = nn.functional.pad(seen, (0, missing))
    return flash_attention(query, key, value, key_padding_mask=seen, bias=bias, **options)


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as it is added to the scores."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros((), dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))
