"""What the two operators of decoding refuse, each time naming the argument, what was found and what to do.

The shapes are checked for real and for fake tensors; the lengths and the block table, which are data, for real ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

import nki.language as nl
from nki import errors
from nki_lib.attention.checks import AttentionChecks

MOST_TOKENS = 8
MOST_KEYS = 2**24  # positions are compared in float32
INDEX_TYPES = (torch.int32, torch.int64)


class DecodeChecks(AttentionChecks):
    """Checks of caches, lengths and block tables."""

    def cache(
        self,
        k_cache: Tensor,
        v_cache: Tensor,
        seq_lens: Tensor,
        block_table: Tensor | None,
        like: Tensor,
    ) -> None:
        """A pair of caches for queries or new keys `like`, [B, H, T, D], with their lengths."""
        batch, depth = like.shape[0], like.shape[3]
        paged = block_table is not None
        axes = (
            "blocks, heads, block size, head dimension" if paged else "batch, heads, length, head dimension"
        )
        for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
            self.tensor(name, cache, axes, like)
            if cache.shape[3] != depth:
                raise self.error(
                    errors.ShapeError, name, cache, f"head dimension {depth}, as the first argument"
                )
            if not paged and cache.shape[0] != batch:
                remedy = "pass block_table if this is a cache in blocks"
                raise self.error(errors.ShapeError, name, cache, f"batch {batch}", remedy)
            if paged and cache.shape[2] == 0:
                raise self.error(errors.ShapeError, name, cache, "blocks of at least one key")
        self.shape("v_cache", v_cache, tuple(k_cache.shape), "as k_cache")
        self.indices("seq_lens", seq_lens, (batch,))
        if block_table is not None:
            self.indices(
                "block_table", block_table, (batch, block_table.shape[-1] if block_table.dim() else 0)
            )
        if capacity(k_cache, block_table) > MOST_KEYS:
            raise self.error(errors.ShapeError, "k_cache", k_cache, f"at most {MOST_KEYS} keys a sequence")

    def new_tokens(self, name: str, new: Tensor) -> None:
        """Queries or new keys, [B, H, T, D]."""
        self.tensor(name, new, "batch, heads, tokens, head dimension")
        if not 1 <= new.shape[2] <= MOST_TOKENS:
            remedy = "flash_attention takes prompts"
            raise self.error(errors.ShapeError, name, new, f"1 to {MOST_TOKENS} new tokens", remedy)
        if new.shape[3] > nl.tile_size.pmax:
            raise self.error(errors.ShapeError, name, new, f"a head dimension of at most {nl.tile_size.pmax}")

    def indices(self, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
        """A tensor of indices of this shape."""
        if tensor.dtype not in INDEX_TYPES:
            raise self.error(errors.DtypeError, name, tensor, "int32 or int64", f"cast it: {name}.int()")
        self.shape(name, tensor, shape, "one for each sequence")

    def lengths(self, k_cache: Tensor, seq_lens: Tensor, block_table: Tensor | None) -> list[int]:
        """The lengths as numbers, which fit the cache, and whose blocks exist."""
        lengths: list[int] = seq_lens.tolist()
        most = capacity(k_cache, block_table)
        for b, length in enumerate(lengths):
            if not 0 <= length <= most:
                remedy = "make the cache or the block table longer" if length > 0 else None
                raise self.error(errors.BoundsError, "seq_lens", f"{length} at {b}", f"0 to {most}", remedy)
        if block_table is not None:
            size, blocks = k_cache.shape[2], k_cache.shape[0]
            starts = torch.arange(block_table.shape[1]) * size
            wrong = (starts < seq_lens[:, None]) & ((block_table < 0) | (block_table >= blocks))
            if wrong.any():
                b, entry = wrong.nonzero()[0].tolist()
                found = f"block {int(block_table[b, entry])} at [{b}, {entry}]"
                raise self.error(errors.BoundsError, "block_table", found, f"0 to {blocks - 1}")
        return lengths


def capacity(cache: Tensor, block_table: Tensor | None) -> int:
    """How many keys of one sequence the cache has room for."""
    size: int = cache.shape[2]
    return size if block_table is None else size * block_table.shape[1]
