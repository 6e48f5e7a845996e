"""The front door: recipes and a BlockMask become what the operator takes. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nki import errors
from nki_lib.attention.flex_attention.recipe import MaskRecipe, ScoreRecipe

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn.attention.flex_attention import BlockMask

__all__ = ["flex_attention"]

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    import torch

    from nki_lib.attention.flex_attention.blocks import BLOCK, kinds_of_block_mask, tiles_of
    from nki_lib.attention.flex_attention.op import CHECKS, check_arguments
    from nki_lib.attention.flex_attention.op import OPERATOR as _flex_attention
    from nki_lib.common.arguments import autocast


def flex_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    score_mod: ScoreRecipe | None = None,
    mask_mod: MaskRecipe | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
) -> Tensor:
    """softmax(mask(score_mod(scale * q k^T))) v, tile by tile; PyTorch's flex_attention with recipes that NKI can run.

    q: [B, Hq, Sq, D]; k, v: [B, Hkv, Sk, D] with Hq a multiple of Hkv and D <= 128; all float32, bfloat16 or float16,
    of any strides. Statistics are float32. The result has the shape and dtype of q and is contiguous; a query that sees
    no key gets zeros.
    score_mod: a ScoreRecipe, e.g. recipes.alibi(slopes) >> recipes.softcap(30.0).
    mask_mod: a MaskRecipe, e.g. recipes.causal() & recipes.sliding_window(256). Blocks of which the recipe knows that
    they are empty are skipped, those known to be full are not masked.
    block_mask: a BlockMask of PyTorch for exactly these lengths. Its empty blocks are skipped, its full ones are not
    masked. Partial ones are masked by `mask_mod`, which then must be the mask that it was made of; else by its own
    mask_mod: in NKI if that is a recipe, else by tiles that PyTorch computes in every call, one per partial block.
    scale: 1/sqrt(D) by default.

    Gradients of q, k and v are computed in plain PyTorch, with [Sq, Sk] in memory for one head at a time; tensors in
    recipes have none. Works under torch.compile(fullgraph=True); under torch.autocast q, k and v are cast.
    Raises ShapeError, DtypeError and ArgumentError naming the argument; NoBackwardError if a recipe has no `slope`, or
    if one of its tensors requires a gradient.
    Example: nki_lib.flex_attention(q, k, v, score_mod=recipes.softcap(20.0), mask_mod=recipes.causal())
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.flex_attention needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.attention.flex_attention.kernel",
        )
    CHECKS.places(q=q, k=k, v=v)
    CHECKS.numbers(scale)
    q, k, v = autocast(q, k, v)
    if not torch.compiler.is_compiling():
        check_arguments(q, k, v, scale)
    _check_recipe("score_mod", score_mod, ScoreRecipe, "write it as a ScoreRecipe; recipe.py shows one")
    _check_recipe("mask_mod", mask_mod, MaskRecipe, "pass block_mask=create_block_mask(mask_mod, ...)")
    kinds, tiles, block = None, None, BLOCK
    if block_mask is not None:
        _check_block_mask(q, k, block_mask)
        block, kinds = block_mask.BLOCK_SIZE, kinds_of_block_mask(block_mask)
        if mask_mod is None and isinstance(block_mask.mask_mod, MaskRecipe):
            mask_mod = block_mask.mask_mod
        elif mask_mod is None:
            tiles = tiles_of(block_mask.mask_mod, kinds, block, block_mask.seq_lengths)
    given = [recipe for recipe in (score_mod, mask_mod) if recipe is not None]
    data = [tensor for recipe in given for tensor in recipe.tensors()]
    _check_data(q, k, given, data)
    score, mask = ("" if recipe is None else recipe.text() for recipe in (score_mod, mask_mod))
    return _flex_attention(
        q, k, v, data, kinds, tiles, score=score, mask=mask, block=list(block), scale=scale
    )


def _check_recipe(name: str, recipe: Any, kind: type, remedy: str) -> None:
    if recipe is not None and not isinstance(recipe, kind):
        raise errors.ArgumentError(
            f"flex_attention: `{name}` is not a recipe that NKI can run",
            operand=name,
            found=type(recipe).__name__,
            allowed=f"a {kind.__name__} or None",
            remedy=remedy,
        )


def _check_data(q: Tensor, k: Tensor, recipes: list[Any], data: list[Any]) -> None:
    for tensor in data:
        if not isinstance(tensor, torch.Tensor):
            raise errors.ArgumentError(
                "flex_attention: a recipe holds an array that is not a PyTorch tensor",
                operand="score_mod or mask_mod",
                found=type(tensor).__name__,
                allowed="torch tensors",
                remedy="torch.as_tensor(array)",
            )
        if tensor.requires_grad and torch.is_grad_enabled():
            raise errors.NoBackwardError(
                "flex_attention: the tensors of recipes have no gradient",
                operand="score_mod or mask_mod",
                found=f"a tensor of shape {list(tensor.shape)} that requires a gradient",
                allowed="gradients of q, k and v",
                remedy="detach it, or call under torch.no_grad()",
            )
    if q.dim() == 4 and k.dim() == 4:
        for recipe in recipes:
            recipe.check((q.shape[0], q.shape[1], q.shape[2], k.shape[2]))


def _check_block_mask(q: Tensor, k: Tensor, block_mask: Any) -> None:
    if not hasattr(block_mask, "kv_num_blocks"):
        raise errors.ArgumentError(
            "flex_attention: `block_mask` is no BlockMask",
            operand="block_mask",
            found=type(block_mask).__name__,
            allowed="a torch.nn.attention.flex_attention.BlockMask, or None",
            remedy="create_block_mask(mask_mod, B, H, queries, keys, device='cpu')",
        )
    shape = tuple(block_mask.shape)
    fits = (
        q.dim() == 4
        and k.dim() == 4
        and len(shape) == 4
        and shape[0] in (1, q.shape[0])
        and shape[1] in (1, q.shape[1])
        and shape[2:] == (q.shape[2], k.shape[2])
    )
    if not fits:
        raise errors.ShapeError(
            "flex_attention: `block_mask` is not for these tensors",
            operand="block_mask",
            found=f"a BlockMask of shape {list(shape)} for q {list(q.shape)} and k {list(k.shape)}",
            allowed="[1 or batch, 1 or heads of q, queries, keys]",
            remedy="create_block_mask(mask_mod, B, H, q.shape[2], k.shape[2], device='cpu')",
        )
