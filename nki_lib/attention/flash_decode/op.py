"""`torch.ops.nki_lib.flash_decode` and `update_cache`: checks, places of keys, one launch for each sequence.

All sequences of a batch run one program, whatever their lengths: it reads as many keys as the longest one has, rounded
up to a power of two, and learns the length of its sequence while running. So generating stages a program only when the
longest sequence outgrows a power of two.
"""

from __future__ import annotations

from math import gcd

import torch
from torch import Tensor

import nki.language as nl
from nki import errors
from nki.torch import nki_op, run_into
from nki_lib.attention.flash_decode.checks import DecodeChecks
from nki_lib.attention.flash_decode.kernel import MOST_ROWS
from nki_lib.attention.flash_decode.kernel import flash_decode as kernel
from nki_lib.attention.flash_decode.loading import keys_per_partition
from nki_lib.attention.flash_decode.update import write_rows

DECODE = DecodeChecks("flash_decode")
UPDATE = DecodeChecks("update_cache")


def _fake(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seq_lens: Tensor,
    block_table: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    check_decode(q, k_cache, v_cache, seq_lens, block_table, window, sinks, scale, softcap)
    return q.new_empty(q.shape)


@nki_op(
    "nki_lib::flash_decode",
    fake=_fake,
    schema="(Tensor q, Tensor k_cache, Tensor v_cache, Tensor seq_lens, Tensor? block_table=None, "
    "Tensor? sinks=None, *, float? scale=None, int? window=None, float? softcap=None) -> Tensor",
)
def flash_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seq_lens: Tensor,
    block_table: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """The operator behind `nki_lib.flash_decode`, where the arguments are explained."""
    check_decode(q, k_cache, v_cache, seq_lens, block_table, window, sinks, scale, softcap)
    lengths = DECODE.lengths(k_cache, seq_lens, block_table)
    out = q.new_zeros(q.shape)
    keys = keys_read(max(lengths, default=0))
    if q.numel() == 0 or keys == 0:
        return out
    heads, tokens, depth = q.shape[1:]
    key_heads = k_cache.shape[1]
    scale = depth**-0.5 if scale is None else scale
    grouped = (key_heads, heads // key_heads, tokens, depth)
    sink_rows = None
    if sinks is not None:
        sink_rows = sinks.detach().float().view(*grouped[:2], 1, 1).expand(-1, -1, tokens, -1)
    for b in range(len(lengths)):
        places = None
        if block_table is not None:
            places = places_of_runs(k_cache, block_table[b], lengths[b], keys)
        k, v = (c if places is not None else first_keys(c[b], keys) for c in (k_cache, v_cache))
        fixed = (keys, tokens, scale, window, softcap)
        tensors = (k, v, torch.tensor([[lengths[b]]], dtype=torch.int32))
        launch(out[b].view(grouped), q[b].reshape(grouped), tensors, fixed, sink_rows, places)
    return out


def launch(
    out: Tensor,
    q: Tensor,
    tensors: tuple[Tensor, ...],
    fixed: tuple[object, ...],
    sinks: Tensor | None,
    places: Tensor | None,
) -> None:
    """Decode one sequence, at most `MOST_ROWS` rows of each key head at a time. Dimensions: out, q [Hkv, G, T, D]."""
    group, tokens = q.shape[1:3]
    most = MOST_ROWS // tokens
    for first in range(0, group, most):
        mine = slice(first, min(first + most, group))
        rows = None if sinks is None else sinks[:, mine].flatten(1, 2)
        target = out[:, mine]
        whole = target.flatten(1, 2)  # a view unless the heads come in parts
        run_into(whole, kernel, q[:, mine].flatten(1, 2), *tensors, *fixed, rows, places)
        if whole.data_ptr() != target.data_ptr():
            target.copy_(whole.view(target.shape))


def keys_read(longest: int) -> int:
    """How many keys the program for this longest sequence reads: a power of two that fills the partitions."""
    return max(1 << (longest - 1).bit_length(), nl.tile_size.pmax) if longest else 0


def first_keys(cache: Tensor, keys: int) -> Tensor:
    """The first `keys` keys, with zeros after them if there are fewer. Dimensions: [Hkv, S, D] -> [Hkv, keys, D].

    So a cache that grows by concatenation stages no more programs than one of a fixed size.
    """
    missing = keys - cache.shape[1]
    if missing <= 0:
        return cache[:, :keys]
    filled = cache.new_zeros(cache.shape[0], keys, cache.shape[2])
    filled[:, : cache.shape[1]] = cache
    return filled


def places_of_runs(cache: Tensor, table: Tensor, length: int, keys: int) -> Tensor:
    """Where the kernel finds each run of keys that lie in one block: see `places` there.

    Runs after the end of the sequence are taken from block 0, which exists.
    """
    _, heads, size, depth = cache.shape
    per = keys_per_partition(keys, depth, cache.dtype.itemsize)
    run = gcd(size, per)
    first = torch.arange(0, keys, run)
    inside = first < length
    block = table.long()[torch.where(inside, first // size, 0)]
    place = (block * heads * size + first % size) // run
    return torch.where(inside, place, 0).int().view(-1, nl.tile_size.pmax, per // run)


def check_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seq_lens: Tensor,
    block_table: Tensor | None,
    window: int | None,
    sinks: Tensor | None,
    scale: float | None,
    softcap: float | None,
) -> None:
    """Raise for what cannot be computed, naming the argument."""
    DECODE.new_tokens("q", q)
    DECODE.cache(k_cache, v_cache, seq_lens, block_table, q)
    heads, key_heads = q.shape[1], k_cache.shape[1]
    if heads != key_heads and (key_heads == 0 or heads % key_heads != 0):
        allowed = f"a number of heads that divides the {heads} of q"
        raise DECODE.error(errors.ShapeError, "k_cache", k_cache, allowed)
    DECODE.numbers(scale, window, softcap)
    if sinks is not None:
        DECODE.tensor("sinks", sinks, "heads")
        DECODE.shape("sinks", sinks, (heads,), "one for each head of q")


def check_new(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k_new: Tensor | None, v_new: Tensor | None
) -> None:
    """Raise for new keys and values that do not belong to the queries, or that a gradient should flow through."""
    for name, new in (("k_new", k_new), ("v_new", v_new)):
        if new is None:
            allowed = "both k_new and v_new, or neither"
            remedy = f"pass {name}, or write both into the caches yourself"
            raise DECODE.error(errors.ArgumentError, name, None, allowed, remedy)
        if new.dim() == 4 and (new.shape[0], new.shape[2], new.shape[3]) != (q.shape[0], *q.shape[2:]):
            allowed = f"batch {q.shape[0]}, {q.shape[2]} tokens and head dimension {q.shape[3]}, as q"
            raise DECODE.error(errors.ShapeError, name, new, allowed)
    named = {"k_cache": k_cache, "v_cache": v_cache, "k_new": k_new, "v_new": v_new}
    for name, tensor in named.items():
        if torch.is_grad_enabled() and tensor is not None and tensor.requires_grad:
            allowed = "tensors that need no gradient: the caches are written in place"
            remedy = f"call it under torch.no_grad(), or pass {name}.detach(); flash_attention has gradients"
            raise DECODE.error(
                errors.NoBackwardError, name, "a tensor that requires a gradient", allowed, remedy
            )


def _update_fake(
    k_cache: Tensor,
    v_cache: Tensor,
    k_new: Tensor,
    v_new: Tensor,
    seq_lens: Tensor,
    block_table: Tensor | None = None,
) -> None:
    check_update(k_cache, v_cache, k_new, v_new, seq_lens, block_table)


@nki_op(
    "nki_lib::update_cache",
    fake=_update_fake,
    mutates_args=("k_cache", "v_cache"),
    schema="(Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k_new, Tensor v_new, Tensor seq_lens, "
    "Tensor? block_table=None) -> ()",
)
def update_cache(
    k_cache: Tensor,
    v_cache: Tensor,
    k_new: Tensor,
    v_new: Tensor,
    seq_lens: Tensor,
    block_table: Tensor | None = None,
) -> None:
    """Write new keys and values at the positions seq_len - T ... seq_len - 1; `nki_lib.flash_decode` explains them.

    A position before the beginning is skipped: a sequence of length 0 takes nothing.
    """
    check_update(k_cache, v_cache, k_new, v_new, seq_lens, block_table)
    UPDATE.lengths(k_cache, seq_lens, block_table)
    if k_new.numel() == 0 or k_cache.numel() == 0:
        return
    places = places_of_rows(k_cache, k_new.shape[2], seq_lens.long(), block_table)
    for cache, new in ((k_cache, k_new), (v_cache, v_new)):
        write_rows(cache, new.reshape(-1, new.shape[3]), places)


def places_of_rows(cache: Tensor, tokens: int, lengths: Tensor, block_table: Tensor | None) -> Tensor:
    """Which row of the cache each new row becomes; one after the end if none. Dimensions: -> [B * Hkv * T, 1] int32."""
    outer, heads, size, _ = cache.shape
    batch = lengths.shape[0]
    position = lengths[:, None] - tokens + torch.arange(tokens)
    exists = position >= 0
    position = position.clamp(min=0)
    block, inside = torch.arange(batch)[:, None].expand_as(position), position
    if block_table is not None:
        block, inside = block_table.long().gather(1, position // size), position % size
    row = (block[:, None] * heads + torch.arange(heads)[:, None]) * size + inside[:, None]
    return torch.where(exists[:, None], row, outer * heads * size).int().reshape(-1, 1)


def check_update(
    k_cache: Tensor,
    v_cache: Tensor,
    k_new: Tensor,
    v_new: Tensor,
    seq_lens: Tensor,
    block_table: Tensor | None,
) -> None:
    """Raise for what cannot be written, naming the argument."""
    UPDATE.new_tokens("k_new", k_new)
    UPDATE.cache(k_cache, v_cache, seq_lens, block_table, k_new)
    UPDATE.tensor("v_new", v_new, "batch, heads, tokens, head dimension", k_new)
    UPDATE.shape("v_new", v_new, tuple(k_new.shape), "as k_new")
    if k_new.shape[1] != k_cache.shape[1]:
        raise UPDATE.error(errors.ShapeError, "k_new", k_new, f"{k_cache.shape[1]} heads, as k_cache")


OPERATOR = torch.ops.nki_lib.flash_decode.default
"""What `nki_lib.flash_decode` calls."""

UPDATE_OPERATOR = torch.ops.nki_lib.update_cache.default
"""What writes `k_new` and `v_new`."""
