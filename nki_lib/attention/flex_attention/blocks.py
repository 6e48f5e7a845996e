"""Blocks of a mask: what each is, from a BlockMask of PyTorch or from a recipe, and the masks of partial ones.

In tensors, because they pass through an operator: `kinds` [Bm, Hm, Sq/BQ, Sk/BK] int8 of EMPTY, PARTIAL and FULL, with
Bm 1 or B, Hm 1 or Hq; `tiles` [P, BQ, BK] bool, the masks of partial blocks in the order of `kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from nki_lib.attention.flex_attention.recipe import FULL, PARTIAL, MaskRecipe, from_text

BLOCK = (128, 128)
"""Queries and keys of a block where no BlockMask says otherwise."""


def kinds_of_block_mask(block_mask: Any) -> Tensor:
    """What each block of a BlockMask is."""
    columns = -(-block_mask.seq_lengths[1] // block_mask.BLOCK_SIZE[1])
    kinds = _listed(block_mask.kv_num_blocks, block_mask.kv_indices, columns) * PARTIAL
    if block_mask.full_kv_num_blocks is None:
        return kinds
    full = _listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, columns)
    return torch.where(full > 0, FULL, kinds).to(torch.int8)


def _listed(counts: Tensor, columns: Tensor, width: int) -> Tensor:
    """1 where a block is listed. Dimensions: counts [..., rows], columns [..., rows, n] -> [..., rows, width]."""
    valid = torch.arange(columns.shape[-1]) < counts[..., None]
    places = torch.where(valid, columns, width).long()
    found = torch.zeros((*columns.shape[:-1], width + 1), dtype=torch.int8)
    return found.scatter(-1, places, torch.ones_like(places, dtype=torch.int8))[..., :width]


def tiles_of(
    mask_mod: Callable[..., Tensor], kinds: Tensor, block: tuple[int, int], lengths: tuple[int, int]
) -> Tensor:
    """The mask of every partial block, by PyTorch; while a graph is traced, whose shapes must not depend on values, of
    every block. Queries and keys beyond the end get the values of the last one: nobody reads them.
    """
    if torch.compiler.is_compiling():
        places = torch.cartesian_prod(*(torch.arange(size) for size in kinds.shape))
    else:
        places = (kinds == PARTIAL).nonzero()
    b, h, row, column = places.unbind(1)
    q_idx = (row[:, None] * block[0] + torch.arange(block[0])).clamp(max=lengths[0] - 1)
    kv_idx = (column[:, None] * block[1] + torch.arange(block[1])).clamp(max=lengths[1] - 1)
    if len(places) == 0:
        return torch.ones((0, *block), dtype=torch.bool)
    by_key = torch.vmap(mask_mod, in_dims=(None, None, None, 0))
    by_query = torch.vmap(by_key, in_dims=(None, None, 0, None))
    return torch.vmap(by_query)(b, h, q_idx, kv_idx)


@lru_cache(maxsize=64)
def kinds_of_recipe(mask: MaskRecipe | None, queries: int, keys: int) -> Tensor:
    """What a recipe without tensors says about each block, for all batch elements and heads."""
    kinds = [
        FULL if mask is None else mask.cover(q, min(q + BLOCK[0], queries), k, min(k + BLOCK[1], keys))
        for q in range(0, queries, BLOCK[0])
        for k in range(0, keys, BLOCK[1])
    ]
    return torch.tensor(kinds, dtype=torch.int8).reshape(1, 1, -(-queries // BLOCK[0]), -(-keys // BLOCK[1]))


@dataclass
class Call:
    """What the operator's arguments mean: recipes with their tensors, and `bare` with holes for them; blocks."""

    score: Any
    mask: Any
    bare: tuple[Any, Any]
    kinds: Tensor
    tiles: Tensor | None
    block: tuple[int, int]


def unpack(
    score: str,
    mask: str,
    data: Sequence[Tensor],
    kinds: Tensor | None,
    tiles: Tensor | None,
    block: Sequence[int],
    lengths: tuple[int, int],
) -> Call:
    """Read the recipes, ask them for the kinds of blocks if no BlockMask does, and drop tiles that are not partial."""
    bare = (from_text(score), from_text(mask))
    tensors = iter(data)
    full = [None if recipe is None else recipe.with_tensors(tensors) for recipe in bare]
    if kinds is None:
        return Call(*full, bare, kinds_of_recipe(bare[1], *lengths), None, BLOCK)
    if tiles is not None and len(tiles) == kinds.numel():
        tiles = tiles[(kinds == PARTIAL).flatten()]
    return Call(*full, bare, kinds, tiles, (block[0], block[1]))


def cut(kinds: Tensor, tiles: Tensor | None, b: int, heads: slice) -> tuple[Tensor, Tensor | None]:
    """The kinds [G or 1, rows, columns] and tiles of some heads of a batch element. `tiles`: of partial blocks."""
    b = b if kinds.shape[0] > 1 else 0
    heads = heads if kinds.shape[1] > 1 else slice(0, 1)
    mine = kinds[b, heads]
    if tiles is None:
        return mine, None
    before = int((kinds[:b] == PARTIAL).sum() + (kinds[b, : heads.start] == PARTIAL).sum())
    return mine, tiles[before : before + int((mine == PARTIAL).sum())]


def dense_mask(
    kinds: Tensor,
    tiles: Tensor | None,
    block: tuple[int, int],
    lengths: tuple[int, int],
    recipe: Tensor | None,
) -> Tensor:
    """Who sees whom, one head: True in full blocks, the tile or the recipe's mask [Sq, Sk] in partial ones.

    Dimensions: kinds [rows, columns], tiles [P, BQ, BK] or None -> [Sq, Sk].
    """
    rows, columns = kinds.shape
    full = (kinds == FULL)[:, None, :, None].expand(rows, block[0], columns, block[1])
    partial = (kinds == PARTIAL)[:, None, :, None].expand(rows, block[0], columns, block[1])
    whole = (rows * block[0], columns * block[1])
    seen, inside = (part.reshape(whole)[: lengths[0], : lengths[1]] for part in (full, partial))
    if tiles is not None:
        placed = torch.zeros((rows, columns, *block), dtype=torch.bool)
        placed[kinds == PARTIAL] = tiles
        return seen | placed.transpose(1, 2).reshape(whole)[: lengths[0], : lengths[1]]
    return seen | (inside if recipe is None else inside & recipe)
