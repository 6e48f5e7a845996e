"""`nki_lib.flash_decode`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    import torch

    from nki_lib.attention.flash_decode.op import (
        DECODE,
        OPERATOR,
        UPDATE_OPERATOR,
        check_decode,
        check_new,
    )
    from nki_lib.common.arguments import autocast


def flash_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seq_lens: Tensor,
    *,
    block_table: Tensor | None = None,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    scale: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attention of one or a few new tokens against a cache of keys and values.

    q: [B, Hq, T, D], T from 1 to 8, D up to 128; float32, bfloat16 or float16, and so are the caches. Any strides.
    k_cache, v_cache: [B, Hkv, S, D], Hq a multiple of Hkv; or in blocks, [num_blocks, Hkv, block_size, D].
    block_table: [B, max_blocks] int32 or int64, for caches in blocks: entry i has the keys from i * block_size on.
    Entries after the end of the sequence are not looked at.
    seq_lens: [B] int32 or int64, how many keys a sequence has, the new ones included. Token t sees the keys
    j <= seq_len - T + t; one that sees none gets zeros. What lies after the end of a sequence has no effect.
    k_new, v_new: [B, Hkv, T, D], written into the caches at seq_len - T ... seq_len - 1 first, in place; else the
    caches hold them already.
    scale: 1/sqrt(D) by default. window: a token sees only that many keys, its own included.
    sinks: [Hq], a score of each head that takes weight and gives nothing; not scaled, not capped.
    softcap: scores become softcap * tanh(score / softcap).

    Returns [B, Hq, T, D] like q, contiguous. Statistics are float32. There is no gradient. Under `torch.autocast` q and
    the caches are cast; with k_new, q and the new keys and values become of the caches' dtype.
    Lengths are data: one program serves a batch, and all lengths up to the next power of two.
    Raises ShapeError, DtypeError, ArgumentError or, for a length or a block outside the cache, BoundsError, each naming
    the argument; NoBackwardError from a backward pass; MissingExtraError without PyTorch.

    Example: nki_lib.flash_decode(q, k_cache, v_cache, torch.tensor([700, 41]), k_new=k, v_new=v)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.flash_decode needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.attention.flash_decode.kernel",
        )
    tensors = (q, k_cache, v_cache, seq_lens, block_table, sinks)
    names = ("q", "k_cache", "v_cache", "seq_lens", "block_table", "sinks")
    DECODE.places(**dict(zip(names, tensors)), k_new=k_new, v_new=v_new)
    DECODE.numbers(scale, window, softcap)
    if k_new is None and v_new is None:
        q, k_cache, v_cache = autocast(q, k_cache, v_cache)
    else:
        if torch.is_autocast_enabled("cpu"):  # a cache that is written keeps its dtype
            q, k_new, v_new = (t if t is None else t.to(k_cache.dtype) for t in (q, k_new, v_new))
        if not torch.compiler.is_compiling():  # whose fake implementations check before anything is written
            check_decode(q, k_cache, v_cache, seq_lens, block_table, window, sinks, scale, softcap)
        check_new(q, k_cache, v_cache, k_new, v_new)
        UPDATE_OPERATOR(k_cache, v_cache, k_new, v_new, seq_lens, block_table)
    return OPERATOR(
        q, k_cache, v_cache, seq_lens, block_table, sinks, scale=scale, window=window, softcap=softcap
    )
