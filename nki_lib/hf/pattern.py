"""Which keys a query sees, as attention computes it: what `masks.py` knows, on its way through a model's layers.

Transformers hands a layer one tensor, its mask. Where that tensor has four dimensions it says everything, and the
pattern that it was made from travels with it as an attribute, so that the kernels need not read it; whatever a model
does to the tensor (a slice, a copy) loses the attribute and leaves a mask that is still right.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

ATTRIBUTE = "nki_pattern"


@dataclass(frozen=True, eq=False)
class Pattern:
    """Query i sees the key j if all of this says so. Dimensions: B, Sq queries, Sk keys.

    keys: how many keys there are, if fewer than Sk: the rest of a static cache is empty.
    causal: j <= i + keys - Sq. window: j > i + keys - Sq - window.
    padding: [B, Sk], false for the keys that nobody sees.
    mask: any pattern that has no name, [B or 1, heads or 1, Sq or 1, Sk], boolean (true: seen) or added to the scores.
    """

    causal: bool
    window: int | None = None
    keys: int | None = None
    padding: Tensor | None = None
    mask: Tensor | None = None


def attach(mask: Tensor, pattern: Pattern) -> Tensor:
    """`mask`, a boolean one of four dimensions, with the pattern that says the same."""
    setattr(mask, ATTRIBUTE, pattern)
    return mask


def pattern_of(mask: Tensor | None, causal: bool) -> Pattern:
    """The pattern that a layer's mask stands for.

    causal: whether the layer is; only asked where the mask leaves it open, being absent or [B, Sk].
    """
    if mask is None or mask.dim() == 2:
        return Pattern(causal, padding=None if mask is None else mask.bool())
    known = getattr(mask, ATTRIBUTE, None)
    return known if isinstance(known, Pattern) else Pattern(False, mask=mask)
